//! On which machines the processes of a cell run (§11.3).

/// On which machines processes run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// Each on one of its own.
    #[default]
    Own,
    /// All on five, as in the paper: servers from the first machine on, clients from the fifth on (§11.3).
    Five,
}

/// The machines of the paper.
const MACHINES: usize = 5;

impl Placement {
    /// Returns the machine of a server, by its number.
    pub fn of_server(self, server: usize) -> usize {
        match self {
            Self::Own => server,
            Self::Five => server % MACHINES,
        }
    }

    /// Returns the machine of a client, the measured one first, beside `n` servers.
    pub fn of_client(self, client: usize, n: usize) -> usize {
        match self {
            Self::Own => n + client,
            Self::Five => (MACHINES - 1 + client) % MACHINES,
        }
    }
}
