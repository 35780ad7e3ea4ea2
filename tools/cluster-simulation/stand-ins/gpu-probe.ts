/** The machine's GPUs are simulated: no process of the real machine is asked for others. */
export class GpuProbe {
  readonly gpus = [];

  async start(): Promise<void> {}

  stop(): void {}
}
