//! What the loops were told that their configuration does not say.

use forebay_core::scheduler::thermal::Level;
use forebay_turn::control::{Change, ChangeSet, Value};

/// What is in force beside the configuration: a loop that takes another's place is told all of it.
#[derive(Debug, Default)]
pub struct Orders {
    /// One change for each group.
    pub set: ChangeSet,
    pub paused: bool,
    pub thermal: Option<Level>,
}

impl Orders {
    /// Keeps the newest thresholds, the newest name of each group, and of each parameter the newest value.
    pub fn note(&mut self, set: &ChangeSet) {
        self.set.thermal = set.thermal.or(self.set.thermal);
        set.changes.iter().for_each(|change| self.note_change(change));
    }

    fn note_change(&mut self, change: &Change) {
        let Some(known) = self.set.changes.iter_mut().find(|known| known.group == change.group) else {
            return self.set.changes.push(change.clone());
        };
        known.name = change.name.clone().or(known.name.take());
        for (name, value) in &change.values {
            let of_name = |(other, _): &&mut (String, Value)| other == name;
            match known.values.iter_mut().find(of_name) {
                Some(known) => known.1 = value.clone(),
                None => known.values.push((name.clone(), value.clone())),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::scheduler::thermal::Thresholds;
    use forebay_turn::control::Group;

    #[test]
    fn the_newest_order_of_each_kind_is_kept() {
        let change = |group, name: Option<&str>, values: &[(&str, f64)]| Change {
            group,
            name: name.map(str::to_owned),
            values: values.iter().map(|(name, value)| ((*name).to_owned(), Value::Number(*value))).collect(),
        };
        let mut orders = Orders::default();
        let mut note = |change: Change| orders.note(&change.into());
        note(change(Group::Strategy, Some("fixed"), &[("max_wait_ms", 20.0)]));
        note(change(Group::Limits, None, &[("max_num_seqs", 4.0)]));
        note(change(Group::Strategy, None, &[("max_wait_ms", 30.0), ("min_wait_ms", 1.0)]));
        note(change(Group::Strategy, Some("immediate"), &[]));
        let thresholds = Some(Thresholds::default());
        orders.note(&ChangeSet { changes: Vec::new(), thermal: thresholds });
        orders.note(&ChangeSet::default());
        assert_eq!(orders.set.thermal, thresholds);
        assert_eq!(
            orders.set.changes,
            [
                change(Group::Strategy, Some("immediate"), &[("max_wait_ms", 30.0), ("min_wait_ms", 1.0)]),
                change(Group::Limits, None, &[("max_num_seqs", 4.0)]),
            ]
        );
    }
}
