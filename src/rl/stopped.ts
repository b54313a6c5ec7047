/** The run ends inside a step that was only sampled: nothing was learned from it, and a resumed run samples it again. */
export class Stopped extends Error {}
