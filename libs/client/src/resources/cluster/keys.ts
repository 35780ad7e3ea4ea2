import type {
  ApiKey,
  CreatedApiKey,
  KeyRotation,
  KeySpec,
  RotatedApiKey,
} from "@heddle/contracts/api/keys";
import { Pages } from "../../pages.ts";
import { pathPart } from "../../path-part.ts";
import type { CallOptions, ChangeOptions, HttpTransport } from "../../transport.ts";

/** API keys: `heddle.keys`. */
export class Keys {
  readonly #transport: HttpTransport;

  constructor(transport: HttpTransport) {
    this.#transport = transport;
  }

  /** The keys without their secrets, newest first. */
  list(options: CallOptions = {}): Pages<ApiKey> {
    return new Pages(this.#transport, "/keys", {}, options);
  }

  /** Creates a key. Its secret, in `key`, is shown only once. */
  create(spec: KeySpec, options: ChangeOptions = {}): Promise<CreatedApiKey> {
    return this.#transport.change({ method: "POST", path: "/keys", body: spec }, options);
  }

  /** Creates a key that replaces another. A key is rotated once; then rotate its successor. */
  rotate(
    id: string,
    rotation: KeyRotation = {},
    options: ChangeOptions = {},
  ): Promise<RotatedApiKey> {
    const path = `${pathOf(id)}/rotate`;
    return this.#transport.change({ method: "POST", path, body: rotation }, options);
  }

  /** Revokes a key at once. */
  revoke(id: string, { signal }: CallOptions = {}): Promise<ApiKey> {
    return this.#transport.json({ method: "DELETE", path: pathOf(id), signal, isRepeatable: true });
  }
}

function pathOf(id: string): string {
  return `/keys/${pathPart(id)}`;
}
