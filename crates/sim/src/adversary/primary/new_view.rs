//! A NEW-VIEW that is wrong in one way (P14-P16).

use quorate_pbft::step::Recipient;
use quorate_wire::codec::Writer;
use quorate_wire::message::NewView;
use quorate_wire::{Digest, Kind};

use super::super::{Fate, Liar, Lie, Said};

/// How a NEW-VIEW is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadNewView {
    /// P14: rests on too few VIEW-CHANGEs.
    TooFew,
    /// P14: names a VIEW-CHANGE that no replica sent.
    Forged,
    /// P15: takes the null batch where something had prepared.
    Drops,
    /// P15: ends before what had prepared.
    Shortened,
    /// P16: one half is sent another one.
    Two,
    /// Starts from a checkpoint with a wrong digest.
    WrongCheckpoint,
    /// Takes an unknown batch.
    Invented,
}

impl BadNewView {
    /// Every way.
    pub const ALL: [Self; 7] = [
        Self::TooFew,
        Self::Forged,
        Self::Drops,
        Self::Shortened,
        Self::Two,
        Self::WrongCheckpoint,
        Self::Invented,
    ];
}

/// P14-P16: its NEW-VIEW is wrong.
#[derive(Debug)]
pub struct LyingNewView(pub BadNewView);

impl Liar for LyingNewView {
    fn speak(&mut self, lie: &mut Lie<'_>, said: &Said<'_>) -> Fate {
        if said.kind != Kind::NewView || !said.own {
            return Fate::Keep;
        }
        let Ok(truth) = NewView::decode(said.body) else { return Fate::Keep };
        let mut wrong = truth.clone();
        let null = lie.domains().null_batch();
        match self.0 {
            BadNewView::TooFew => drop(wrong.view_changes.pop()),
            BadNewView::Forged => {
                if let Some((_, digest)) = wrong.view_changes.first_mut() {
                    *digest = Digest([9; 32]);
                }
            }
            BadNewView::Drops => match wrong.chosen.iter_mut().find(|digest| **digest != null) {
                Some(digest) => *digest = null,
                None => return Fate::Keep,
            },
            BadNewView::Shortened | BadNewView::Two => {
                if wrong.chosen.pop().is_none() {
                    wrong.chosen.push(null);
                }
            }
            BadNewView::WrongCheckpoint => wrong.checkpoint.1 = Digest([8; 32]),
            BadNewView::Invented => wrong.chosen.push(Digest([7; 32])),
        }
        let mut body = Vec::new();
        wrong.encode(&mut Writer::new(&mut body));
        if self.0 == BadNewView::Two {
            let (some, rest) = lie.halves();
            for to in some {
                lie.say(Recipient::Replica(to), Kind::NewView, said.body);
            }
            for to in rest {
                lie.say(Recipient::Replica(to), Kind::NewView, &body);
            }
        } else {
            lie.say(said.to, Kind::NewView, &body);
        }
        Fate::Drop
    }
}
