/** The run ends inside a step that was only sampled: nothing was learned from it, and it is sampled again when the run goes on. */
export class Stopped extends Error {}
