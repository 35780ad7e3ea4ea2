/** When each key was last used here: best effort, not replicated, one entry per existing key. */
export class LastUsed {
  readonly #atMs = new Map<string, number>();

  touch(id: string): void {
    this.#atMs.set(id, Date.now());
  }

  of(id: string): number | undefined {
    return this.#atMs.get(id);
  }
}
