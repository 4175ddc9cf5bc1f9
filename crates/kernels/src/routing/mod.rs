//! Which experts a token goes to, and how their answers come back together.
//!
//! A token's choice depends on its own scores, and its answers are added up in ascending order of the experts, so who else
//! goes to them leaves no trace.

use crate::parallel::for_each_chunk;

/// The tokens of each expert. Its memory is kept from one call to the next.
#[derive(Debug, Default)]
pub struct Routes {
    /// Where each expert's tokens start in the two lists below, and where the last one's end.
    starts: Vec<usize>,
    /// Ascending for each expert.
    rows: Vec<u32>,
    weights: Vec<f32>,
    /// `[T, per_token]`: what each token chose, highest score first, and the weight.
    chosen: Vec<(u32, f32)>,
}

impl Routes {
    /// Each row of `scores`, `[T, experts]`, chooses the `per_token` highest, the first of equal ones. An expert's weight is
    /// its share in the softmax over all experts; `normalised` makes the weights of a row's choice add up to one.
    ///
    /// # Panics
    /// When rows are ragged, or there are fewer experts than are to be chosen.
    pub fn choose(&mut self, scores: &[f32], experts: usize, per_token: usize, normalised: bool) {
        assert!((1..=experts).contains(&per_token) && scores.len().is_multiple_of(experts), "rows of {experts} scores");
        self.chosen.clear();
        for scores in scores.chunks_exact(experts) {
            let first = self.chosen.len();
            for (expert, &score) in scores.iter().enumerate() {
                let place = self.chosen[first..].partition_point(|&(_, other)| other.total_cmp(&score).is_ge());
                if place < per_token {
                    self.chosen.truncate(first + per_token.min(self.chosen.len() - first + 1) - 1);
                    self.chosen.insert(first + place, (expert as u32, score));
                }
            }
            weigh(&mut self.chosen[first..], scores, normalised);
        }
        self.sort(experts, per_token);
    }

    /// By expert, and for each by token.
    fn sort(&mut self, experts: usize, per_token: usize) {
        self.starts.clear();
        self.starts.resize(experts + 1, 0);
        for &(expert, _) in &self.chosen {
            self.starts[expert as usize + 1] += 1;
        }
        for expert in 0..experts {
            self.starts[expert + 1] += self.starts[expert];
        }
        self.rows.resize(self.chosen.len(), 0);
        self.weights.resize(self.chosen.len(), 0.0);
        for (index, &(expert, weight)) in self.chosen.iter().enumerate() {
            let at = self.starts[expert as usize];
            (self.rows[at], self.weights[at]) = ((index / per_token) as u32, weight);
            self.starts[expert as usize] += 1;
        }
        // Each start has moved on to the next one's.
        self.starts.copy_within(..experts, 1);
        self.starts[0] = 0;
    }

    /// The rows that go to `expert`, and how much of its answer each takes.
    pub fn of(&self, expert: usize) -> (&[u32], &[f32]) {
        let range = self.starts[expert]..self.starts[expert + 1];
        (&self.rows[range.clone()], &self.weights[range])
    }
}

/// Scores become weights.
fn weigh(chosen: &mut [(u32, f32)], scores: &[f32], normalised: bool) {
    let largest = chosen[0].1;
    let sum: f32 = scores.iter().map(|score| (score - largest).exp()).sum();
    chosen.iter_mut().for_each(|(_, score)| *score = (*score - largest).exp() / sum);
    if normalised {
        let sum: f32 = chosen.iter().map(|(_, weight)| weight).sum();
        chosen.iter_mut().for_each(|(_, weight)| *weight /= sum);
    }
}

/// `out[i] = x[rows[i]]`, rows of `width`.
pub fn gather(x: &[f32], width: usize, rows: &[u32], out: &mut [f32]) {
    assert_eq!(out.len(), rows.len() * width, "rows of {width}");
    for (out, &row) in out.chunks_exact_mut(width).zip(rows) {
        out.copy_from_slice(&x[row as usize * width..][..width]);
    }
}

/// `out[rows[i]] += weights[i] * y[i]`, rows of `width`; products are rounded before they are added.
pub fn scatter_add(y: &[f32], width: usize, (rows, weights): (&[u32], &[f32]), out: &mut [f32]) {
    assert!(y.len() == rows.len() * width && weights.len() == rows.len(), "rows of {width}");
    for_each_chunk(out, width, y.len() / 4, |row, out| {
        // A row goes to an expert once at most, and rows ascend.
        if let Ok(index) = rows.binary_search(&(row as u32)) {
            let (weight, y) = (weights[index], &y[index * width..][..width]);
            out.iter_mut().zip(y).for_each(|(out, y)| *out += weight * y);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn routes(scores: &[f32], experts: usize, per_token: usize, normalised: bool) -> Vec<(Vec<u32>, Vec<f32>)> {
        let mut routes = Routes::default();
        // What was there before leaves no trace.
        routes.choose(&[1.0; 30], 3, 2, true);
        routes.choose(scores, experts, per_token, normalised);
        (0..experts).map(|expert| routes.of(expert)).map(|(rows, weights)| (rows.to_vec(), weights.to_vec())).collect()
    }

    #[test]
    fn the_highest_are_chosen_and_weighted_by_their_share() {
        let scores = [0.0, 2.0, 1.0, -1.0, /* */ 3.0, 0.0, 0.0, 3.0];
        let got = routes(&scores, 4, 2, false);
        let rows: Vec<&[u32]> = got.iter().map(|(rows, _)| &**rows).collect();
        assert_eq!(rows, [&[1][..], &[0], &[0], &[1]]);
        let share = |scores: &[f64], at: usize| scores[at].exp() / scores.iter().map(|s| s.exp()).sum::<f64>();
        let close = |got: f32, expected: f64| (f64::from(got) - expected).abs() < 1e-6;
        assert!(close(got[1].1[0], share(&[0.0, 2.0, 1.0, -1.0], 1)));
        assert!(close(got[2].1[0], share(&[0.0, 2.0, 1.0, -1.0], 2)));
        let normalised = routes(&scores, 4, 2, true);
        assert!(close(normalised[1].1[0], share(&[2.0, 1.0], 0)) && close(normalised[2].1[0], share(&[2.0, 1.0], 1)));
        assert_eq!((normalised[0].1[0], normalised[3].1[0]), (0.5, 0.5));
    }

    #[test]
    fn of_equal_scores_the_first_are_chosen() {
        let got = routes(&[1.0; 5], 5, 3, true);
        let rows: Vec<usize> = got.iter().map(|(rows, _)| rows.len()).collect();
        assert_eq!(rows, [1, 1, 1, 0, 0]);
    }

    #[test]
    fn choices_equal_those_of_sorting_and_depend_on_the_row_alone() {
        let (experts, per_token) = (13, 4);
        let scores: Vec<f32> = (0..40 * experts).map(|i| ((i * i * 7 + i) % 101) as f32 / 17.0).collect();
        let together = routes(&scores, experts, per_token, true);
        for (row, scores) in scores.chunks(experts).enumerate() {
            let mut order: Vec<usize> = (0..experts).collect();
            order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
            let alone = routes(scores, experts, per_token, true);
            for expert in 0..experts {
                let chosen = order[..per_token].contains(&expert);
                let at = together[expert].0.iter().position(|&r| r as usize == row);
                assert_eq!((at.is_some(), alone[expert].0.len()), (chosen, usize::from(chosen)));
                if let Some(at) = at {
                    assert_eq!(together[expert].1[at].to_bits(), alone[expert].1[0].to_bits());
                }
            }
        }
    }

    #[test]
    fn rows_go_out_and_come_back() {
        let x: Vec<f32> = (0..12).map(|i| i as f32).collect();
        let mut out = vec![0.0; 6];
        gather(&x, 3, &[1, 3], &mut out);
        assert_eq!(out, [3.0, 4.0, 5.0, 9.0, 10.0, 11.0]);
        let mut back = vec![1.0; 12];
        scatter_add(&out, 3, (&[1, 3], &[2.0, 0.5]), &mut back);
        assert_eq!(back, [1.0, 1.0, 1.0, 7.0, 9.0, 11.0, 1.0, 1.0, 1.0, 5.5, 6.0, 6.5]);
    }

    #[test]
    fn scores_that_are_no_numbers_choose_somebody() {
        let got = routes(&[f32::NAN; 4], 4, 2, true);
        assert_eq!(got.iter().map(|(rows, _)| rows.len()).sum::<usize>(), 2);
    }
}
