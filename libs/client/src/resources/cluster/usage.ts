import type { UsageGroup, UsageView } from "@heddle/contracts/api/limits/usage";
import { Pages } from "../../pages.ts";
import type { CallOptions, HttpTransport } from "../../transport.ts";

/** Which usage to sum, and how; days are as `2026-11-26`, in UTC. */
export interface UsageFilter {
  readonly start?: string | undefined;
  readonly end?: string | undefined;
  readonly group_by?: readonly UsageGroup[] | undefined;
  readonly key?: string | undefined;
  readonly project?: string | undefined;
  readonly model?: string | undefined;
}

/** What calls have used: `heddle.usage`. */
export class UsageResource {
  readonly #transport: HttpTransport;

  constructor(transport: HttpTransport) {
    this.#transport = transport;
  }

  /** In the order of the days, of the last 30 days, unless the filter says otherwise. */
  list(filter: UsageFilter = {}, options: CallOptions = {}): Pages<UsageView> {
    const query = { ...filter, group_by: filter.group_by?.join(",") };
    return new Pages(this.#transport, "/usage", query, options);
  }
}
