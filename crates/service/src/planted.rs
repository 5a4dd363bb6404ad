//! Wrong versions of the parallelizer, for its own tests: `plant!(3, right, wrong)` is `wrong` while a test of this
//! thread has planted error 3. Builds other than tests contain only `right`.

#[cfg(test)]
std::thread_local! {
    static PLANTED: core::cell::Cell<u32> = const { core::cell::Cell::new(0) };
}

/// Plants an error in this thread; 0 plants none.
#[cfg(test)]
pub(crate) fn plant(error: u32) {
    PLANTED.with(|planted| planted.set(error));
}

#[cfg(test)]
pub(crate) fn is_planted(error: u32) -> bool {
    PLANTED.with(|planted| planted.get() == error)
}

#[cfg(test)]
macro_rules! plant {
    ($error:literal, $right:expr, $wrong:expr) => {
        if $crate::planted::is_planted($error) { $wrong } else { $right }
    };
}

#[cfg(not(test))]
macro_rules! plant {
    ($error:literal, $right:expr, $wrong:expr) => {
        $right
    };
}
