import type {
  WebhookSettings,
  WebhookView,
  WebhookWithSecret,
} from "@heddle/contracts/api/events/webhooks";
import { pathPart } from "../../path-part.ts";
import type { CallOptions, ChangeOptions, HttpTransport } from "../../transport.ts";

/** Where events are sent: `heddle.webhooks`. */
export class Webhooks {
  readonly #transport: HttpTransport;

  constructor(transport: HttpTransport) {
    this.#transport = transport;
  }

  /** Its secret is shown in this answer alone. */
  create(settings: WebhookSettings, options: ChangeOptions = {}): Promise<WebhookWithSecret> {
    return this.#transport.change({ method: "POST", path: "/webhooks", body: settings }, options);
  }

  async list({ signal }: CallOptions = {}): Promise<readonly WebhookView[]> {
    const request = { method: "GET", path: "/webhooks", signal } as const;
    return (await this.#transport.json<{ readonly data: readonly WebhookView[] }>(request)).data;
  }

  remove(id: string, options: ChangeOptions = {}): Promise<WebhookView> {
    return this.#transport.change({ method: "DELETE", path: pathOf(id) }, options);
  }

  /** A new secret; for a day both sign. */
  rotateSecret(id: string, options: ChangeOptions = {}): Promise<WebhookWithSecret> {
    return this.#transport.change({ method: "POST", path: `${pathOf(id)}/rotate` }, options);
  }

  /** Sends the events again that were given up. */
  retry(id: string, options: ChangeOptions = {}): Promise<WebhookView> {
    return this.#transport.change({ method: "POST", path: `${pathOf(id)}/retry` }, options);
  }
}

function pathOf(id: string): string {
  return `/webhooks/${pathPart(id)}`;
}
