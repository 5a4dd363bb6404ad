//! Seeded bugs: one build with the feature `mutants` holds all of them, and one is turned on at run
//! time, so that swarm and scenarios can show that they would find it (spec §19.4).
//!
//! `mutant!(M1, right, wrong)` is `right`. Only with the feature, and only while mutant 1 is active,
//! is it `wrong`. Without the feature the compiler sees `if false`.

/// Declares the mutants: a constant for each, and the list.
macro_rules! mutants {
    ($($id:ident = $number:literal, $name:literal, $what:literal;)*) => {
        $(#[doc = $what] pub const $id: u32 = $number;)*

        /// Every mutant: its number, its name, and what it does wrong.
        pub const LIST: &[(u32, &str, &str)] = &[$(($number, $name, $what),)*];
    };
}

mutants! {
    M1 = 1, "a1-dropped", "A new view takes a prepared batch over without condition A1: nobody can overrule it.";
    M2 = 2, "a2-dropped", "A new view takes a batch over on one replica's word that it prepared, without A2.";
    M3 = 3, "a1-counts-collected", "A1 counts replicas that have discarded their entries for the number (DP-2).";
    M4 = 4, "null-counts-collected", "B counts replicas that have discarded their entries for the number (DP-2).";
    M5 = 5, "first-found", "A new view takes the first prepared batch found, not the one of the highest view.";
    M6 = 6, "nulls-pruned", "A new view leaves out the null batches at the end and uses their numbers again (DP-3).";
    M7 = 7, "leave-with-f", "f SUSPECTs make a `LeaveCert`: faulty replicas alone can end a view (LV-2).";
    M8 = 8, "checkpoint-by-supporters", "The low water marks are counted over a checkpoint's supporters only (A19).";
    M9 = 9, "tentative-weak", "A client takes f + 1 tentative replies for a certificate.";
    M10 = 10, "tentative-mixed", "A client counts tentative replies of different views together (CL-7, A13).";
    M11 = 11, "write-weak", "A client takes f + 1 replies to a write although reads go unordered (CL-8, A12).";
    M12 = 12, "read-weak", "A client takes f + 1 replies to an unordered read for a certificate.";
    M13 = 13, "first-reply", "A client takes the first reply.";
    M14 = 14, "result-unchecked", "A client takes a result without comparing it with the certified digest (CL-6, K12).";
}

#[cfg(feature = "mutants")]
mod switch {
    use core::sync::atomic::{AtomicU32, Ordering};

    /// The active mutant, or 0.
    static ACTIVE: AtomicU32 = AtomicU32::new(0);

    /// Turns on the mutant with this number, alone, or none of them. For the whole process.
    pub fn activate(id: Option<u32>) {
        ACTIVE.store(id.unwrap_or(0), Ordering::Relaxed);
    }

    /// Says whether the mutant with this number is on.
    pub fn is_active(id: u32) -> bool {
        ACTIVE.load(Ordering::Relaxed) == id
    }
}

#[cfg(feature = "mutants")]
pub use switch::{activate, is_active};

/// Says that no mutant is on: this build has none.
#[cfg(not(feature = "mutants"))]
#[inline(always)]
#[allow(clippy::inline_always, reason = "a constant, so that both debug and release drop the branch")]
pub const fn is_active(_id: u32) -> bool {
    false
}

/// Is the second argument, or the third while the mutant named first is active.
macro_rules! mutant {
    ($id:ident, $right:expr, $wrong:expr) => {
        if $crate::mutants::is_active($crate::mutants::$id) { $wrong } else { $right }
    };
}

#[cfg(test)]
mod tests {
    use super::LIST;

    #[test]
    fn every_mutant_has_its_own_number_and_name() {
        for (i, (id, name, _)) in LIST.iter().enumerate() {
            assert!(*id != 0);
            assert!(LIST.iter().skip(i + 1).all(|(other, title, _)| other != id && title != name), "{name}");
        }
    }
}
