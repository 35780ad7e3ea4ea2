/** A run is short, and V8 frees its slabs in time. */
export class FreedSlabs {
  add(): void {}
}
