//! The log of a process, on standard error: text, or a JSON object a line.

use std::fmt;
use std::process::Command;

use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime as _, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// Writes the log of this process to standard error: as much of it as `QUORATE_LOG` says, and as JSON if
/// `QUORATE_LOG_FORMAT` is `json`.
pub(crate) fn to_stderr() {
    // A line that cannot be written is left out: the message about that would panic (L161).
    let log = tracing_subscriber::fmt()
        .with_max_level(level())
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .log_internal_errors(false);
    if std::env::var_os("QUORATE_LOG_FORMAT").is_some_and(|format| format == "json") {
        log.event_format(Json).init();
    } else {
        log.init();
    }
}

/// Makes a process write a log that [`Local`](crate::local::Local) can read, whatever this user wants of other processes: text,
/// and not less of it than usual.
pub(crate) fn readable(command: &mut Command) -> &mut Command {
    command.env("QUORATE_LOG", level().max(LevelFilter::INFO).to_string()).env_remove("QUORATE_LOG_FORMAT")
}

fn level() -> LevelFilter {
    let level = std::env::var("QUORATE_LOG").ok().and_then(|level| level.parse().ok());
    level.unwrap_or(LevelFilter::INFO)
}

/// Writes each event as a JSON object, with the keys `time`, `level`, `target`, `message`, and the event's own.
struct Json;

impl<S, N> FormatEvent<S, N> for Json
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        let mut object = Object(Map::new());
        event.record(&mut object);
        let meta = event.metadata();
        for (key, value) in [
            ("time", time),
            ("level", meta.level().to_string().to_lowercase()),
            ("target", meta.target().to_owned()),
        ] {
            object.0.insert(key.to_owned(), value.into());
        }
        writeln!(writer, "{}", Value::Object(object.0))
    }
}

/// The fields of an event.
struct Object(Map<String, Value>);

impl Visit for Object {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}").into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0.insert(field.name().to_owned(), value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.0.insert(field.name().to_owned(), value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.0.insert(field.name().to_owned(), value.into());
    }
}
