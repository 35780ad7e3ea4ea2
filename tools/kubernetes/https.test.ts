// holds: kube-https

import { execFileSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { delimiter, dirname, join } from "node:path";
import { createOwnCertificate } from "@heddle/pki/certificate-authority";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { kubectl, untilFound } from "./kube-cluster.ts";
import { kubeTool } from "./kube-tools.ts";
import { ChartRelease, SMALL_PARTS, whyNoRelease } from "./release.ts";

const why = whyNoRelease();
if (why !== undefined) console.log(`tests of HTTPS in the chart are skipped: ${why}`);

const namespace = `https-${randomBytes(4).toString("hex")}`;
const release = new ChartRelease(namespace);
const k = (...args: readonly string[]) => release.kubectl(...args);
const SERVICE = `heddle.${namespace}.svc.cluster.local`;
const VALUES = {
  ...SMALL_PARTS,
  master: { ...SMALL_PARTS.master, httpTlsSecret: "api-tls" },
  worker: { ...SMALL_PARTS.worker, taskIsolation: "optional" },
  operator: { resources: { requests: { cpu: "10m", memory: "64Mi" } } },
  test: { model: "FamilyA-1-2B" },
};

/** A new certificate in the Secret; its own authority. */
async function writeSecret(): Promise<string> {
  const hosts = [SERVICE, `*.heddle-masters.${namespace}.svc.cluster.local`];
  const { certificate, privateKey } = await createOwnCertificate(hosts);
  const stringData = { "tls.crt": certificate, "tls.key": privateKey, "ca.crt": certificate };
  const metadata = { name: "api-tls", namespace };
  const type = "kubernetes.io/tls";
  const secret = { apiVersion: "v1", kind: "Secret", metadata, type, stringData };
  kubectl(["apply", "--filename", "-"], JSON.stringify(secret));
  return certificate;
}

/** What a program in a master's pod writes that trusts this certificate alone. */
function inPod(script: string, certificate: string): string {
  const line = `const tls = require("node:tls"); const ca = process.env.CA; ${script}`;
  const command = ["env", `CA=${certificate}`, "node", "--eval", line];
  return k("exec", "heddle-master-0", "--container=master", "--", ...command);
}

/** Whether the masters' Service shows this certificate. */
function serves(certificate: string): boolean {
  const script = `
    const socket = tls.connect({ host: "${SERVICE}", servername: "${SERVICE}", port: 80, ca },
      () => { console.log("trusted"); socket.end(); });
    socket.on("error", ({ message }) => console.log(message));`;
  return inPod(script, certificate).trim() === "trusted";
}

describe.skipIf(why !== undefined)("the chart with HTTPS", { timeout: 600_000 }, () => {
  let first = "";

  beforeAll(async () => {
    kubectl(["create", "namespace", namespace]);
    kubectl(["label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted"]);
    first = await writeSecret();
    release.install(VALUES);
  }, 400_000);
  afterAll(() => {
    if (why === undefined) kubectl(["delete", "namespace", namespace, "--wait=false"]);
  });

  it("https: masters, workers and the test of the release trust the Secret's authority", async () => {
    expect(serves(first)).toBe(true);
    await untilFound("the release's test passes", () => {
      return /Phase: +Succeeded/.test(release.helm(["test", "heddle"], {})) || undefined;
    });
  });

  it("https: the operator calls the masters by it", () => {
    const metadata = { name: "hello", namespace };
    const spec = { command: "true" };
    const job = { apiVersion: "heddle.dev/v1alpha1", kind: "TrainingJob", metadata, spec };
    kubectl(["apply", "--filename", "-"], JSON.stringify(job));
    k("wait", "--for=condition=Complete", "--timeout=120s", "trainingjob/hello");
  });

  it("https: kubectl heddle checks the certificate by the Secret", () => {
    const plugin = join(import.meta.dirname, "../../bin/kubectl-heddle.mjs");
    const path = `${dirname(kubeTool("kubectl") ?? "")}${delimiter}${process.env["PATH"]}`;
    const env = { ...process.env, PATH: path, KUBECONFIG: process.env["HEDDLE_KUBECONFIG"] };
    const args = [plugin, "--namespace", namespace, "workers", "list"];
    const list = execFileSync(process.execPath, args, { env, encoding: "utf8" });
    expect(list).toMatch(/heddle-worker-0 +ready/);
  });

  it("https: another authority is not trusted, and HTTP in the clear is refused", async () => {
    const { certificate } = await createOwnCertificate([SERVICE]);
    expect(serves(certificate)).toBe(false);
    const url = `http://${SERVICE}:80/livez`;
    const script = `fetch("${url}").then(({ status }) => console.log(status), () => console.log("refused"))`;
    expect(inPod(script, first).trim()).toBe("refused");
  });

  it("https: masters take a new certificate of the Secret without a restart", async () => {
    const starts = () =>
      k(
        "get",
        "pods",
        "--selector=app.kubernetes.io/component=master",
        "--output=jsonpath={.items[*].metadata.uid} {.items[*].status.containerStatuses[*].restartCount}",
      );
    const before = starts();
    const second = await writeSecret();
    await untilFound("the new certificate", () => serves(second) || undefined, 240_000);
    expect(starts()).toBe(before);
  });
});
