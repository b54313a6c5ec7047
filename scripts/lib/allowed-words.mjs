// Lines on which a word of scripts/check-words.mjs is used in a right sense: file, text of the line, reason.
export const allowed = [
  { file: 'src/dashboard/report.test.ts', text: 'figcaption', reason: 'a tag of HTML' },
  { file: 'README.md', text: 'A language model behind any server', reason: 'behind in space' },
  { file: 'README.md', text: '[NOTICE](NOTICE)', reason: 'the name of a file' },
  { file: 'docs/rewards.md', text: '| speaks of a door? |', reason: 'the door of a picture' },
  { file: 'tests/support/judge-faults.ts', text: 'with a yellow door', reason: 'the door of a picture' },
  { file: 'src/rewards/judge/hostile.test.ts', text: 'seen from behind', reason: 'behind in space' },
  { file: 'src/rewards/judge/judge.test.ts', text: 'collar', reason: 'the door of a picture' },
  { file: 'src/rewards/judge/questions.test.ts', text: 'stands on a branch', reason: 'a bird' },
  { file: 'tests/e2e/behaviour.test.ts', text: 'class="', reason: 'a class of the page' },
  { file: 'tests/e2e/judge-run.test.ts', text: 'a wing or a door', reason: 'the door of a picture' },
  { file: 'tests/invariant/notice.test.ts', text: 'NOTICE', reason: 'the name of a file' },
]
