import type { Log } from "@heddle/observability/logger";
import { ApiException, CoreV1Api, KubeConfig } from "@kubernetes/client-node";
import { commandFlags } from "./command-flags.ts";
import type { Secrets } from "./new-secrets.ts";
import { type SecretStore, setUpSecrets } from "./set-up-secrets.ts";

/** Makes the Secret with a new cluster's secrets; one that exists stays. */
export async function createSecret(args: readonly string[], log: Log): Promise<void> {
  const { name, namespace } = commandFlags(args, ["name", "namespace"]);
  const config = new KubeConfig();
  config.loadFromDefault();
  await setUpSecrets(new ClusterSecret(config.makeApiClient(CoreV1Api), name, namespace), log);
}

class ClusterSecret implements SecretStore {
  readonly place: string;
  readonly #api: CoreV1Api;
  readonly #object: { readonly name: string; readonly namespace: string };
  #version: string | undefined;

  constructor(api: CoreV1Api, name: string, namespace: string) {
    this.place = `the Secret ${namespace}/${name}`;
    this.#api = api;
    this.#object = { name, namespace };
  }

  async create(make: () => Promise<Secrets>): Promise<boolean> {
    const { name, namespace } = this.#object;
    const body = {
      metadata: { name, namespace, labels: { "app.kubernetes.io/part-of": "heddle" } },
      type: "Opaque",
      stringData: await make(),
    };
    try {
      await this.#api.createNamespacedSecret({ namespace, body });
      return true;
    } catch (error) {
      if (error instanceof ApiException && error.code === 409) return false;
      throw error;
    }
  }

  async read(): Promise<Partial<Secrets>> {
    const { data = {}, metadata } = await this.#api.readNamespacedSecret(this.#object);
    this.#version = metadata?.resourceVersion;
    return Object.fromEntries(
      Object.entries(data).map(([key, value]) => [key, Buffer.from(value, "base64").toString()]),
    );
  }

  /** Refused if another job has changed the Secret since it was read. */
  async add(key: keyof Secrets, text: string): Promise<void> {
    const value = Buffer.from(text).toString("base64");
    const body = [
      { op: "test", path: "/metadata/resourceVersion", value: this.#version },
      { op: "add", path: `/data/${key}`, value },
    ];
    await this.#api.patchNamespacedSecret({ ...this.#object, body });
  }
}
