import type { SecretView } from "@heddle/contracts/api/access/secrets";
import { Pages } from "../../pages.ts";
import { pathPart } from "../../path-part.ts";
import type { CallOptions, ChangeOptions, HttpTransport } from "../../transport.ts";

/** Named secrets of the caller's project, which its jobs name: `heddle.secrets`. */
export class SecretsResource {
  readonly #transport: HttpTransport;

  constructor(transport: HttpTransport) {
    this.#transport = transport;
  }

  /** In the order of the names, without their values. */
  list(options: CallOptions = {}): Pages<SecretView> {
    return new Pages(this.#transport, "/secrets", {}, options);
  }

  get(name: string, { signal }: CallOptions = {}): Promise<SecretView> {
    return this.#transport.json({ method: "GET", path: pathOf(name), signal });
  }

  /** Creates a secret, or gives it another value for tasks that start from now on. */
  set(name: string, value: string, options: ChangeOptions = {}): Promise<SecretView> {
    return this.#transport.change({ method: "PUT", path: pathOf(name), body: { value } }, options);
  }

  /** Removes a secret that no job names which has not ended. */
  remove(name: string, { signal }: CallOptions = {}): Promise<SecretView> {
    return this.#transport.json({ method: "DELETE", path: pathOf(name), signal });
  }
}

function pathOf(name: string): string {
  return `/secrets/${pathPart(name)}`;
}
