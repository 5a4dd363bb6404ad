//! The protocol's tests by section of the paper: one program, so that the desk is compiled once.

mod desk;
mod durability;
mod evidence;
mod lives;
mod restart_and_rejoin;
mod section_4_1_client;
mod section_4_2_normal_case;
mod section_4_3_checkpoint;
mod section_4_4_view_change;
mod section_4_5_liveness;
mod section_4_5_patience;
mod section_4_6_choices;
mod section_5_1_communication;
