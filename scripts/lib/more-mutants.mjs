// Faults around the step: what it is fed with, what is kept of it, and how it is judged. Entries as in mutants.mjs.
const step = 'tests/invariant/step-written-out.test.ts'
const traps = 'tests/invariant/trainer-traps.test.ts'
const switches = 'tests/invariant/trainer-switches.test.ts'
const learning = 'tests/invariant/trainer-learning.test.ts'
const resume = 'tests/invariant/resume-state.test.ts'
const answers = 'tests/invariant/answers.test.ts'
const supervised = 'tests/invariant/sft.test.ts'
const golden = 'src/verify/grpo.test.ts'
const optimizer = 'src/optim/adamw.test.ts'
const loading = 'src/data/loader.test.ts'
const generation = 'src/models/llm/generate.test.ts'
const teacher = 'src/models/llm/teacher.test.ts'
const mixing = 'src/rewards/mix.test.ts'
const meteor = 'src/rewards/meteor/meteor.test.ts'
const evaluate = 'src/tasks/cycle/evaluate.test.ts'
const rewards = 'src/tasks/cycle/rewards.test.ts'

const S = 'src/rl/step.ts'
const SFT = 'src/run/sft.ts'
const SUP = 'src/tasks/cycle/supervised.ts'
const EVAL = 'src/tasks/cycle/evaluate.ts'
const STATE = 'src/run/state.ts'
const ADAM = 'src/optim/adamw.ts'
const GEN = 'src/models/llm/generate.ts'
const METEOR = 'src/rewards/meteor/score.ts'

export const moreMutants = [
  // roles
  [
    'roles',
    'the EMA copy samples',
    S,
    'roles.forSampling(() => tidy(() => task.sample(items, draw)))',
    'roles.asEma(() => roles.forSampling(() => tidy(() => task.sample(items, draw))))',
    step,
    'EMA copy answers',
  ],
  [
    'roles',
    'the EMA copy is the KL reference',
    S,
    'run.roles.asReference(() => allPlainDensities(without))',
    'run.roles.asEma(() => allPlainDensities(without))',
    traps,
    'KL is k3',
  ],
  [
    'EMA',
    'the decay is turned round',
    'src/optim/ema.ts',
    '            this.decay,\n',
    '            1 - this.decay,\n',
    optimizer,
    'closed form',
  ],
  [
    'EMA',
    'the copy follows in every step though it should wait',
    'src/optim/ema.ts',
    'if (globalStep % this.every !== 0) return false',
    '',
    optimizer,
    'every n steps',
  ],
  [
    'loss',
    "loop 2's weight is 1",
    'src/tasks/cycle/caption-to-mask.ts',
    'this.weight = loop2.weight',
    'this.weight = 1',
    step,
    'written out',
  ],
  [
    'losses',
    'epsilonHigh is epsilon',
    'src/rl/policy-terms.ts',
    'config.epsilonHigh ?? config.epsilon)]',
    'config.epsilon)]',
    golden,
  ],
  // optimizer and schedule
  [
    'optimizer',
    'the betas are swapped',
    ADAM,
    'new AdamW(groups, { beta1, beta2, eps, owns })',
    'new AdamW(groups, { beta1: beta2, beta2: beta1, eps, owns })',
    'src/run/learner.test.ts',
    'betas',
  ],
  ['optimizer', 'vectors are decayed', ADAM, 't.ndim >= 2 && ', '', optimizer, 'not decayed'],
  ['optimizer', 'no bias correction', ADAM, 'step: steps + 1,', 'step: 1e9,', golden],
  [
    'schedule',
    'linear ends one step early',
    'src/optim/schedule.ts',
    '(total - step) / span',
    '(total - step - 1) / span',
    golden,
  ],
  [
    'schedule',
    'warm-up is one step ahead',
    'src/optim/schedule.ts',
    '(step / Math.max(1, warmup))',
    '((step + 1) / Math.max(1, warmup))',
    golden,
  ],
  // data
  [
    'data',
    'every epoch has the same order',
    'src/data/order.ts',
    'stream(seed, streamId.data, epoch)',
    'stream(seed, streamId.data, 0)',
    loading,
    'seed and epoch',
  ],
  [
    'data',
    'the held-out records are trained on',
    'src/run/records.ts',
    "split: held ? ('train' as const) : data.split",
    'split: data.split',
    learning,
    'held out',
  ],
  [
    'data',
    'the evaluation takes records of the training',
    'src/run/records.ts',
    "config.evalPath === null ? 'eval' : 'all'",
    "config.evalPath === null ? 'train' : 'all'",
    learning,
    'held out',
  ],
  [
    'data',
    'a record met again in a step is sampled as before',
    'src/run/batches.ts',
    'draw.again.set(id, (draw.again.get(id) ?? 0) + 1)',
    'draw.again.set(id, 0)',
    switches,
    'met again',
  ],
  [
    'data',
    'groups without spread are kept',
    'src/run/batches.ts',
    'const useful = own.filter((g) => g.hasSignal)',
    'const useful = own',
    switches,
    'groups without spread',
  ],
  [
    'data',
    'a generation batch is passed over once',
    'src/run/batches.ts',
    'pieces.length * this.#sizes.passes',
    'pieces.length',
    step,
    'second pass over',
  ],
  // sampling
  [
    'sampling',
    "the tokenizer's end does not end a row",
    GEN,
    'new Set([...this.#tokenizer.eosIds, ...(stopIds ?? [])])',
    'new Set(stopIds ?? [])',
    generation,
    'stop ids',
  ],
  [
    'sampling',
    'no row counts as finished',
    GEN,
    'row.finished = true',
    'row.finished = false',
    generation,
    'stop string',
  ],
  [
    'scoring',
    'tokens are scored by the row that read them',
    'src/models/llm/teacher.ts',
    'rows.push(this.rowOf(k, j - 1))',
    'rows.push(this.rowOf(k, j))',
    teacher,
    'an answer of one token',
  ],
  // rewards
  [
    'rewards',
    'METEOR without its penalty',
    METEOR,
    'return (1 - penaltyOf(found, settings)) * fMean',
    'return fMean',
    meteor,
  ],
  [
    'rewards',
    'METEOR turns precision and recall round',
    METEOR,
    'fMeanOf(found.matches / found.hypLength, found.matches / found.refLength, settings.alpha)',
    'fMeanOf(found.matches / found.refLength, found.matches / found.hypLength, settings.alpha)',
    meteor,
  ],
  [
    'rewards',
    'the union counts the overlap twice',
    'src/mask/mask.ts',
    'maskArea(a) + maskArea(b) - both',
    'maskArea(a) + maskArea(b)',
    'src/mask/mask.test.ts',
  ],
  [
    'rewards',
    'no mask is a full overlap',
    'src/rewards/builtin.ts',
    'mask === null ? 0 : iouOf',
    'mask === null ? 1 : iouOf',
    'src/rewards/iou.test.ts',
  ],
  [
    'rewards',
    'the judge has no share in loop 2',
    'src/tasks/cycle/rewards.ts',
    "of('loop2', config.judgeLoop2, 'captionPrime')",
    "of('loop2', false, 'captionPrime')",
    rewards,
  ],
  [
    'rewards',
    'length shaping is dropped',
    'src/rewards/mix.ts',
    'value * shapeFactor(answer, options.shaping)',
    'value',
    mixing,
  ],
  [
    'rewards',
    "a mask's confidence is that of another output",
    'src/models/sa2va/grounding.ts',
    'takeMask(ious.detach(), index)',
    'ious.detach().narrow(1, 0, 1)',
    answers,
    'chosen output',
  ],
  [
    'rewards',
    'rewards get no picture',
    'src/run/train.ts',
    'if (!record || pictures)',
    'if (!record)',
    answers,
    'pictures are sent',
  ],
  // checkpoint and resume
  [
    'resume',
    'the policy is saved as the EMA copy',
    STATE,
    'writer(learner.ema.state())',
    'writer(params)',
    resume,
    'two passes',
  ],
  ['resume', 'trained weights begin anew', STATE, 'tensorAt(slot).copy_(t)', '', resume, 'two passes'],
  [
    'resume',
    'a moving reference begins anew',
    STATE,
    "learner.reference?.load(read('reference.safetensors'))",
    '',
    switches,
    'reference that moves is',
  ],
  // supervised fine-tuning
  [
    'sft',
    'records of a step are not averaged',
    SFT,
    'backward(loss.mul(weight))',
    'backward(loss)',
    supervised,
    'mean',
  ],
  ['sft', 'the EMA copy does not follow', SFT, 'ema.update(learner.params())', '', supervised, 'EMA'],
  [
    'sft',
    'the weight of the mask loss is ignored',
    SUP,
    'mask.loss.mul(options.maskWeight * share)',
    'mask.loss.mul(share)',
    supervised,
    'written out',
  ],
  [
    'sft',
    'cross-entropy is summed per record',
    SUP,
    '.div(-tokens.caption)',
    '.div(-described.length)',
    supervised,
    'written out',
  ],
  [
    'sft',
    'BCE and Dice weigh the same',
    'src/tasks/cycle/mask-loss.ts',
    'weights = { bce: 2, dice: 0.5 }',
    'weights = { bce: 1, dice: 1 }',
    supervised,
    'written out',
  ],
  // evaluation
  [
    'evaluation',
    'an answer without a mask counts as found',
    EVAL,
    'maskIou: mask ? maskIou(e.mask, mask) : 0',
    'maskIou: mask ? maskIou(e.mask, mask) : 1',
    evaluate,
  ],
  [
    'evaluation',
    'METEOR takes the caption for the reference',
    EVAL,
    "captionMeteor: meteor(e.caption, captions[i] ?? '')",
    "captionMeteor: meteor(captions[i] ?? '', e.caption)",
    evaluate,
  ],
  [
    'evaluation',
    'the retold caption is that of the record',
    EVAL,
    'found.map((f) => f.mask),\n    )',
    'items.map((item) => item.example.mask),\n    )',
    evaluate,
  ],
]
