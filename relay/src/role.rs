//! The relay's role, and what each listener does with a newcomer in it.
//!
//! ```text
//! Ready ──activate──► Active ──standby──► Standby ──activate──► Active
//!   └──canary──► Canary ──activate──► Active        any ──drain──► Draining ──undrain──► Active
//! ```

use std::time::{Duration, Instant};

/// How long handshakes that still arrive are accepted after the role was lost: the second datagram of a first flight
/// and what waits in the socket were sent to this process. Later ones are ignored, never refused: a client that gets
/// silence tries again and reaches the successor, one that is refused gives up.
pub const GRACE: Duration = Duration::from_secs(2);

/// The role, with what its rules depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Serves, but newcomers are not sent here yet.
    Ready,
    /// Newcomers are sent here.
    Active,
    /// A share of the newcomers is sent here.
    Canary {
        /// Of 1 000 clients, how many.
        permille: u16,
    },
    /// Newcomers go to another; the sessions stay.
    Standby {
        /// When the role was lost.
        since: Instant,
    },
    /// The sessions are told to go.
    Draining {
        /// When newcomers stopped being sent here, as far as this relay knows.
        since: Instant,
    },
}

/// What changes the role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Become active.
    Activate,
    /// Become a canary.
    Canary {
        /// Of 1 000 clients, how many.
        permille: u16,
    },
    /// Lose the role, keep the sessions.
    Standby,
    /// Drain.
    Drain,
    /// Stop draining, as the last resort.
    Undrain,
}

impl Role {
    /// The role after an order. A drain is undone by [`Order::Undrain`] only.
    #[must_use]
    pub fn after(self, order: Order, now: Instant) -> Self {
        match (self, order) {
            (Self::Draining { .. }, Order::Activate | Order::Canary { .. } | Order::Standby | Order::Drain) => self,
            (Self::Draining { .. }, Order::Undrain) => Self::Active,
            (_, Order::Activate) => Self::Active,
            (_, Order::Canary { permille }) => Self::Canary { permille },
            (Self::Standby { .. }, Order::Standby) => self,
            (Self::Ready | Self::Active | Self::Canary { .. }, Order::Standby) => Self::Standby { since: now },
            (Self::Standby { since }, Order::Drain) => Self::Draining { since },
            (Self::Ready | Self::Active | Self::Canary { .. }, Order::Drain) => Self::Draining { since: now },
            (Self::Ready | Self::Active | Self::Canary { .. } | Self::Standby { .. }, Order::Undrain) => self,
        }
    }

    /// Whether a QUIC handshake that begins now is accepted; otherwise its packet is ignored.
    #[must_use]
    pub fn accepts_quic(self, now: Instant) -> bool {
        match self {
            Self::Ready | Self::Active | Self::Canary { .. } => true,
            Self::Standby { since } | Self::Draining { since } => now.saturating_duration_since(since) < GRACE,
        }
    }

    /// Whether stream listeners accept. They share one socket with the other generations and so can't be steered: only
    /// the active generation accepts.
    #[must_use]
    pub fn accepts_streams(self) -> bool {
        match self {
            Self::Active => true,
            Self::Ready | Self::Canary { .. } | Self::Standby { .. } | Self::Draining { .. } => false,
        }
    }

    /// Whether its sessions are told to go.
    #[must_use]
    pub fn is_draining(self) -> bool {
        match self {
            Self::Draining { .. } => true,
            Self::Ready | Self::Active | Self::Canary { .. } | Self::Standby { .. } => false,
        }
    }

    /// When another generation took over, if one has and this one has not been told to go since.
    #[must_use]
    pub fn switched(self) -> Option<Instant> {
        match self {
            Self::Standby { since } => Some(since),
            Self::Ready | Self::Active | Self::Canary { .. } | Self::Draining { .. } => None,
        }
    }

    /// Its name, for logs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::Active => "active",
            Self::Canary { .. } => "canary",
            Self::Standby { .. } => "standby",
            Self::Draining { .. } => "draining",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{GRACE, Order, Role};
    use std::time::{Duration, Instant};

    const ORDERS: [Order; 5] =
        [Order::Activate, Order::Canary { permille: 50 }, Order::Standby, Order::Drain, Order::Undrain];

    /// Every cell of state × order, by name.
    #[test]
    fn every_order_in_every_role_has_one_outcome() {
        let then = Instant::now();
        let now = then + Duration::from_secs(60);
        let canary = Role::Canary { permille: 50 };
        let lost = Role::Standby { since: now };
        let drain = Role::Draining { since: now };
        let standby = Role::Standby { since: then };
        let draining = Role::Draining { since: then };
        for (role, outcomes) in [
            (Role::Ready, [Role::Active, canary, lost, drain, Role::Ready]),
            (Role::Active, [Role::Active, canary, lost, drain, Role::Active]),
            (canary, [Role::Active, canary, lost, drain, canary]),
            (standby, [Role::Active, canary, standby, draining, standby]),
            (draining, [draining, draining, draining, draining, Role::Active]),
        ] {
            for (order, outcome) in ORDERS.into_iter().zip(outcomes) {
                assert_eq!(role.after(order, now), outcome, "{role:?} {order:?}");
            }
        }
    }

    /// The grace runs from the loss of the role, not from the drain that follows it.
    #[test]
    fn handshakes_are_accepted_for_the_grace_after_the_role_was_lost() {
        let lost = Instant::now();
        let standby = Role::Active.after(Order::Standby, lost);
        let draining = standby.after(Order::Drain, lost + GRACE / 2);
        for role in [standby, draining] {
            assert!(role.accepts_quic(lost));
            assert!(role.accepts_quic(lost + GRACE - Duration::from_nanos(1)));
            assert!(!role.accepts_quic(lost + GRACE));
        }
        assert!(standby.after(Order::Activate, lost + GRACE).accepts_quic(lost + GRACE * 9));
    }

    /// Two generations that accept from one stream socket would split its clients at random.
    #[test]
    fn only_the_active_relay_accepts_streams() {
        let now = Instant::now();
        let accepting = ORDERS.map(|order| Role::Ready.after(order, now).accepts_streams());
        assert_eq!(accepting, [true, false, false, false, false]);
    }
}
