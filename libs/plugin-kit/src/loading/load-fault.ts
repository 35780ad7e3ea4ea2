/** How a plugin fails; each is counted. */
export const PLUGIN_FAULT_KINDS = ["threw", "late", "blocked", "exited", "memory"] as const;
export type PluginFaultKind = (typeof PLUGIN_FAULT_KINDS)[number];

/** The code of a plugin failed while it was loaded; what it declares wrongly is no such fault. */
export class LoadFault extends Error {
  override readonly name = "LoadFault";
  readonly kind: PluginFaultKind;

  constructor(kind: PluginFaultKind, message: string, options?: ErrorOptions) {
    super(message, options);
    this.kind = kind;
  }
}

/** What a plugin has thrown may be anything, also what throws when it is read. */
export function thrownText(thrown: unknown): string {
  try {
    return String(thrown instanceof Error ? thrown.message : thrown);
  } catch {
    return "it threw what cannot be shown";
  }
}
