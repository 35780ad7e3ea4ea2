import type {
  ApiKey,
  CreatedApiKey,
  KeyRotation,
  KeySpec,
  RotatedApiKey,
} from "@heddle/contracts/api/keys";
import { Pages } from "../pages.ts";
import { pathPart } from "../path-part.ts";
import type { CallOptions, ChangeOptions, HttpTransport } from "../transport.ts";

/** API keys: `heddle.keys`. */
export class Keys {
  readonly #transport: HttpTransport;

  constructor(transport: HttpTransport) {
    this.#transport = transport;
  }

  /** The keys without their texts, newest first. */
  list(options: CallOptions = {}): Pages<ApiKey> {
    return new Pages(this.#transport, "/keys", {}, options);
  }

  /** Makes a key. Its text, in `key`, is shown this once. */
  create(spec: KeySpec, options: ChangeOptions = {}): Promise<CreatedApiKey> {
    return this.#transport.change({ method: "POST", path: "/keys", body: spec }, options);
  }

  /** Makes a new key in place of one, which is done once: then the new one is to be rotated. */
  rotate(
    id: string,
    rotation: KeyRotation = {},
    options: ChangeOptions = {},
  ): Promise<RotatedApiKey> {
    const path = `${pathOf(id)}/rotate`;
    return this.#transport.change({ method: "POST", path, body: rotation }, options);
  }

  /** Ends a key at once. */
  revoke(id: string, { signal }: CallOptions = {}): Promise<ApiKey> {
    return this.#transport.json({ method: "DELETE", path: pathOf(id), signal, isRepeatable: true });
  }
}

function pathOf(id: string): string {
  return `/keys/${pathPart(id)}`;
}
