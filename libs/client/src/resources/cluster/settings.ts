import type { Setting, SettingName } from "@heddle/contracts/api/settings";
import { pathPart } from "../../path-part.ts";
import type { CallOptions, ChangeOptions, HttpTransport } from "../../transport.ts";

/** Cluster settings such as `max_concurrent_jobs`: `heddle.settings`. */
export class Settings {
  readonly #transport: HttpTransport;

  constructor(transport: HttpTransport) {
    this.#transport = transport;
  }

  async list({ signal }: CallOptions = {}): Promise<readonly Setting[]> {
    const request = { method: "GET", path: "/cluster/settings", signal } as const;
    return (await this.#transport.json<{ data: readonly Setting[] }>(request)).data;
  }

  get(name: SettingName, { signal }: CallOptions = {}): Promise<Setting> {
    return this.#transport.json({ method: "GET", path: pathOf(name), signal });
  }

  /** Sets a value; with `ifMatch` only if it has that version. */
  set(name: SettingName, value: number, options: ChangeOptions = {}): Promise<Setting> {
    return this.#transport.change({ method: "PUT", path: pathOf(name), body: { value } }, options);
  }
}

function pathOf(name: string): string {
  return `/cluster/settings/${pathPart(name)}`;
}
