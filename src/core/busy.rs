//! What a send does that finds a reply under way.
//!
//! | the session's run | wanted: `refuse` | `interrupt` | `queue` |
//! |---|---|---|---|
//! | none, or over | starts | starts | starts |
//! | waits for answers of clients | supersedes it | supersedes it | supersedes it; behind a queue: joins it, and the first of it supersedes |
//! | running, or paused for itself | refused | interrupts it | joins the queue, or is refused when that is full |
//!
//! What is wanted: what the request says, if its agent allows that; else what the agent's configuration says first; else, when neither
//! says anything, an interrupt by a stock request that knows of the run, because its page has left that run behind (`stop()`), and a
//! refusal otherwise.

use thiserror::Error;

use super::run::RunStatus;

/// What a send wants that meets a live run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnBusy {
    /// Nothing: the send is refused.
    Refuse,
    /// To stop the run, which keeps its partial reply, and to be answered at once.
    Interrupt,
    /// To be answered next.
    Queue,
}

/// Not a word of [`OnBusy`].
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("refuse, interrupt or queue")]
pub struct NotAWay;

impl OnBusy {
    /// Every way.
    pub const ALL: [Self; 3] = [Self::Refuse, Self::Interrupt, Self::Queue];

    /// Reads a header's or a setting's word.
    ///
    /// # Errors
    /// [`NotAWay`].
    pub fn parse(text: &str) -> Result<Self, NotAWay> {
        Self::ALL.into_iter().find(|way| way.as_str() == text.trim()).ok_or(NotAWay)
    }

    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Refuse => "refuse",
            Self::Interrupt => "interrupt",
            Self::Queue => "queue",
        }
    }
}

/// What an agent allows its callers, the first of it by default. Without any word everything is allowed, and the request decides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ways(Vec<OnBusy>);

impl Ways {
    /// Reads a setting: words, separated by commas. An empty one says nothing.
    ///
    /// # Errors
    /// [`NotAWay`] when one is none, or comes twice.
    pub fn parse(text: &str) -> Result<Self, NotAWay> {
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        Self::of(text.split(',').map(OnBusy::parse))
    }

    /// The ways of a list.
    ///
    /// # Errors
    /// [`NotAWay`] when one is none, or comes twice.
    pub fn of(words: impl Iterator<Item = Result<OnBusy, NotAWay>>) -> Result<Self, NotAWay> {
        let mut ways = Vec::new();
        for word in words {
            let word = word?;
            if ways.contains(&word) {
                return Err(NotAWay);
            }
            ways.push(word);
        }
        Ok(Self(ways))
    }

    /// Whether a request may choose this.
    pub fn allows(&self, way: OnBusy) -> bool {
        self.0.is_empty() || self.0.contains(&way)
    }

    /// What a request may choose from.
    pub fn allowed(&self) -> Vec<OnBusy> {
        if self.0.is_empty() { OnBusy::ALL.to_vec() } else { self.0.clone() }
    }

    /// What this send wants; `None` when its request asks for what is not allowed.
    pub fn wanted(&self, sender: Sender) -> Option<OnBusy> {
        match (sender.asks, self.0.first()) {
            (Some(way), _) => Some(way).filter(|way| self.allows(*way)),
            (None, Some(first)) => Some(*first),
            (None, None) if sender.knows_run && !sender.aware => Some(OnBusy::Interrupt),
            (None, None) => Some(OnBusy::Refuse),
        }
    }
}

/// What is known of the one who sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sender {
    /// What the request says by its header.
    pub asks: Option<OnBusy>,
    /// Whether its client understands resync events.
    pub aware: bool,
    /// Whether its messages hold the message that the live run answers.
    pub knows_run: bool,
}

/// What a send does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meets {
    /// It starts a run; one that waits for answers of clients is superseded.
    Starts,
    /// It stops the run and starts its own.
    Interrupts,
    /// It joins the queue.
    Queues,
    /// It joins the queue, whose first message takes the place of the run that waits for answers.
    QueuesAndGoesOn,
    /// It is refused, because a reply is under way.
    Refused,
    /// It is refused, because its request asks for what the agent does not allow.
    NotAllowed,
    /// It is refused, because the queue is full.
    Full,
}

/// What a send does in a session whose last run stands so, with so many messages in its queue, of at most `most`.
pub fn meets(run: Option<RunStatus>, queued: usize, most: usize, wanted: Option<OnBusy>) -> Meets {
    let busy = run.is_some_and(RunStatus::is_busy);
    let asks = run == Some(RunStatus::SuspendedClientTool);
    match wanted {
        None if busy => Meets::NotAllowed,
        Some(OnBusy::Queue) if queued >= most && (busy || (asks && queued > 0)) => Meets::Full,
        Some(OnBusy::Queue) if busy => Meets::Queues,
        Some(OnBusy::Queue) if asks && queued > 0 => Meets::QueuesAndGoesOn,
        Some(OnBusy::Interrupt) if busy => Meets::Interrupts,
        Some(OnBusy::Refuse) if busy => Meets::Refused,
        _ => Meets::Starts,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use RunStatus::{
        Completed, Failed, Interrupted, Running, Superseded, SuspendedAwaitingChildren, SuspendedClientTool,
        SuspendedStepPartial,
    };
    use proptest::prelude::*;

    fn ways(text: &str) -> Ways {
        Ways::parse(text).unwrap()
    }

    #[test]
    fn the_table_of_what_a_send_does() {
        let wanted = [None, Some(OnBusy::Refuse), Some(OnBusy::Interrupt), Some(OnBusy::Queue)];
        let row = |run, queued| wanted.map(|wanted| meets(run, queued, 2, wanted));
        for run in [None, Some(Completed), Some(Failed), Some(Interrupted), Some(Superseded)] {
            assert_eq!(row(run, 0), [Meets::Starts; 4], "{run:?}");
        }
        for run in [Running, SuspendedAwaitingChildren, SuspendedStepPartial].map(Some) {
            let busy = [Meets::NotAllowed, Meets::Refused, Meets::Interrupts];
            assert_eq!(row(run, 0), [busy[0], busy[1], busy[2], Meets::Queues], "{run:?}");
            assert_eq!(row(run, 1), [busy[0], busy[1], busy[2], Meets::Queues], "{run:?}");
            assert_eq!(row(run, 2), [busy[0], busy[1], busy[2], Meets::Full], "{run:?}");
        }
        let asks = Some(SuspendedClientTool);
        assert_eq!(row(asks, 0), [Meets::Starts; 4]);
        assert_eq!(row(asks, 1), [Meets::Starts, Meets::Starts, Meets::Starts, Meets::QueuesAndGoesOn]);
        assert_eq!(row(asks, 2), [Meets::Starts, Meets::Starts, Meets::Starts, Meets::Full]);
    }

    #[test]
    fn the_request_chooses_among_what_the_agent_allows() {
        let sender = |asks, aware, knows_run| Sender { asks, aware, knows_run };
        for way in OnBusy::ALL {
            assert_eq!(ways("").wanted(sender(Some(way), true, true)), Some(way), "everything is allowed");
            assert_eq!(ways(way.as_str()).wanted(sender(None, false, true)), Some(way), "the agent's own word");
            for other in OnBusy::ALL {
                let chosen = ways(way.as_str()).wanted(sender(Some(other), false, true));
                assert_eq!(chosen, (way == other).then_some(way));
            }
        }
        let two = ways("queue, interrupt");
        assert_eq!(two.allowed(), [OnBusy::Queue, OnBusy::Interrupt]);
        assert_eq!(two.wanted(sender(None, false, true)), Some(OnBusy::Queue), "the first");
        assert_eq!(two.wanted(sender(Some(OnBusy::Interrupt), false, false)), Some(OnBusy::Interrupt));
        assert_eq!(two.wanted(sender(Some(OnBusy::Refuse), false, false)), None);
    }

    #[test]
    fn without_a_word_only_a_stock_page_that_knows_of_the_run_interrupts() {
        for (aware, knows_run, expected) in [
            (false, true, OnBusy::Interrupt),
            (false, false, OnBusy::Refuse),
            (true, true, OnBusy::Refuse),
            (true, false, OnBusy::Refuse),
        ] {
            assert_eq!(ways("").wanted(Sender { asks: None, aware, knows_run }), Some(expected));
        }
    }

    #[test]
    fn words_that_are_none_are_refused() {
        for text in ["wait", "queue,", "queue queue", "queue,queue", "Queue", ","] {
            assert_eq!(Ways::parse(text), Err(NotAWay), "{text}");
        }
        assert_eq!(ways(" "), Ways::default());
    }

    fn status() -> impl Strategy<Value = Option<RunStatus>> {
        prop::option::of(prop::sample::select(vec![
            Running,
            SuspendedClientTool,
            SuspendedAwaitingChildren,
            SuspendedStepPartial,
            Completed,
            Failed,
            Interrupted,
            Superseded,
        ]))
    }

    proptest! {
        /// A busy session never starts a second run beside the first, and an idle one refuses nobody.
        #[test]
        fn one_reply_at_a_time(
            run in status(), queued in 0_usize..5, most in 1_usize..4, wanted in prop::option::of(0_usize..3)
        ) {
            let meets = meets(run, queued, most, wanted.map(|way| OnBusy::ALL[way]));
            let busy = run.is_some_and(RunStatus::is_busy);
            prop_assert_eq!(meets == Meets::Starts && busy, false);
            let refuses = matches!(meets, Meets::Refused | Meets::NotAllowed | Meets::Full);
            prop_assert!(!refuses || run.is_some_and(RunStatus::is_live));
            prop_assert!(!matches!(meets, Meets::Queues | Meets::QueuesAndGoesOn) || queued < most);
        }
    }
}
