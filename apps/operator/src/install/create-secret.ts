import { AppError } from "@heddle/base/errors";
import type { Log } from "@heddle/observability/logger";
import { ApiException, CoreV1Api, KubeConfig } from "@kubernetes/client-node";
import { commandFlags } from "./command-flags.ts";
import { ENROLL_KEY, newEnrollKey, newSecrets, SECRET_NAMES } from "./new-secrets.ts";

/**
 * Makes the Secret with a new cluster's certificate authority, first administrator's key and secrets
 * key. Of one that exists nothing is changed: without it the masters' state cannot be read. Only the
 * key by which nodes join is added where an earlier version has made it without.
 */
export async function createSecret(args: readonly string[], log: Log): Promise<void> {
  const { name, namespace } = commandFlags(args, ["name", "namespace"]);
  const config = new KubeConfig();
  config.loadFromDefault();
  const api = config.makeApiClient(CoreV1Api);
  const body = {
    metadata: { name, namespace, labels: { "app.kubernetes.io/part-of": "heddle" } },
    type: "Opaque",
    stringData: await newSecrets(),
  };
  try {
    await api.createNamespacedSecret({ namespace, body });
    log.info({ name, namespace }, "the Secret was made");
  } catch (error) {
    if (!isConflict(error)) throw error;
    const { data = {}, metadata } = await api.readNamespacedSecret({ name, namespace });
    const missing = SECRET_NAMES.filter((key) => !data[key]);
    if (missing.length > 0) {
      const message = `The Secret ${namespace}/${name} lacks ${missing.join(", ")}. Add them, or remove it to have a new one made.`;
      throw new AppError("conflict", message);
    }
    if (data[ENROLL_KEY]) {
      return log.info({ name, namespace }, "the Secret exists and stays as it is");
    }
    const authority = Buffer.from(data["ca.pem"] ?? "", "base64").toString();
    const text = newEnrollKey(authority, `ca.pem of the Secret ${namespace}/${name}`);
    const value = Buffer.from(text).toString("base64");
    // Refused if another job has added one since it was read.
    const patch = [
      { op: "test", path: "/metadata/resourceVersion", value: metadata?.resourceVersion },
      { op: "add", path: `/data/${ENROLL_KEY}`, value },
    ];
    await api.patchNamespacedSecret({ namespace, name, body: patch });
    log.info({ name, namespace }, "the enroll-key was added to the Secret");
  }
}

function isConflict(error: unknown): boolean {
  return error instanceof ApiException && error.code === 409;
}
