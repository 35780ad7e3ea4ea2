// holds: kube-chart

import { execFileSync } from "node:child_process";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { healthOperations } from "@heddle/contracts/api/health";
import { describe, expect, it } from "vitest";
import { parseAllDocuments } from "yaml";
import { CHART, helm, helmBy, kubeTool, NO_HELM } from "./kube-tools.ts";
import { type Manifest, manifestFaults } from "./manifest-faults.ts";

const ROOT = join(import.meta.dirname, "..", "..");
const VALUES = readdirSync(join(CHART, "ci")).map((name) => join(CHART, "ci", name));
const isMissing = kubeTool("helm") === undefined;
if (isMissing) console.log(`tests of the chart are skipped: ${NO_HELM}`);
const isHelm3Missing = kubeTool("helm3") === undefined;
if (isHelm3Missing) console.log("helm3 is not here: npm run kube:tools");

function render(release: string, ...args: readonly string[]): Manifest[] {
  return objectsOf(helm("template", release, CHART, "--namespace", "models", ...args));
}

function objectsOf(text: string): Manifest[] {
  return parseAllDocuments(text).flatMap((document) => {
    expect(document.errors).toEqual([]);
    return document.toJS() === null ? [] : [document.toJS() as Manifest];
  });
}

interface PodTemplate {
  readonly spec: {
    readonly imagePullSecrets?: readonly object[];
    readonly volumes?: readonly { readonly name: string }[];
    readonly topologySpreadConstraints?: readonly object[];
    readonly initContainers?: readonly Container[];
    readonly containers: readonly Container[];
  };
}

interface Container {
  readonly image: string;
  readonly volumeMounts?: readonly { readonly name: string }[];
  readonly args: readonly string[];
  readonly securityContext: Readonly<Record<string, unknown>>;
  readonly [probe: `${string}Probe`]: { readonly httpGet: { readonly path: string } } | undefined;
}

function podsOf(manifest: Manifest): PodTemplate["spec"][] {
  const spec = manifest["spec"] as { readonly template?: PodTemplate } | undefined;
  const pod = manifest.kind === "Pod" ? (manifest as unknown as PodTemplate) : spec?.template;
  return pod?.spec.containers ? [pod.spec] : [];
}

function containersOf(manifest: Manifest): Container[] {
  return podsOf(manifest).flatMap(({ initContainers = [], containers }) => [
    ...initContainers,
    ...containers,
  ]);
}

const SETS: readonly { readonly args: readonly string[] }[] = [
  { args: [] },
  ...VALUES.map((file) => ({ args: ["--values", file] })),
];

describe.skipIf(isMissing)("the chart", () => {
  it.each(SETS)("chart: is linted strictly and rendered twice alike with %o", ({ args }) => {
    helm("lint", "--strict", CHART, ...args);
    const [first, second] = [render("a", ...args), render("a", ...args)];
    expect(first).toEqual(second);
    expect(first.length).toBeGreaterThan(5);
    expect(first.flatMap((manifest) => manifestFaults(manifest) ?? [])).toEqual([]);
  });

  it.skipIf(isHelm3Missing).each(SETS)(
    "chart: Helm 3 finds no fault and renders the same objects with %o",
    ({ args }) => {
      helmBy("helm3", ["lint", "--strict", CHART, ...args]);
      const template = ["template", "a", CHART, "--namespace", "models", ...args];
      expect(objectsOf(helmBy("helm3", template))).toEqual(render("a", ...args));
    },
  );

  it("chart: monitors send the key for metrics to masters alone", () => {
    const monitors = render("a", "--values", join(CHART, "ci", "everything.yaml")).filter(
      ({ kind }) => kind === "ServiceMonitor" || kind === "PodMonitor",
    );
    type Spec = Readonly<Record<string, readonly { port: string; authorization?: object }[]>>;
    const endpoints = monitors.flatMap(({ spec }) => {
      const { endpoints: ofServices = [], podMetricsEndpoints = [] } = spec as Spec;
      return ofServices.concat(podMetricsEndpoints);
    });
    const ports = endpoints.map(({ port }) => port).sort();
    expect(ports.join(" ")).toBe("health http http metrics metrics metrics");
    const sent = { credentials: { name: "scraper", key: "key" } };
    for (const { port, authorization } of endpoints) {
      expect(authorization).toEqual(port === "http" ? sent : undefined);
    }
  });

  it("chart: the check of manifests finds unknown fields and other types", () => {
    const metadata = { name: "a" };
    const service = { apiVersion: "v1", kind: "Service", metadata };
    expect(manifestFaults({ ...service, spec: { ports: [{ port: "80", prot: 1 }] } })).toEqual([
      "Service.spec.ports[0].port: expected a number, got string",
      "Service.spec.ports[0].prot: unknown field",
    ]);
    expect(manifestFaults({ apiVersion: "a.example/v1", kind: "A", metadata })).toBeUndefined();
  });

  it("chart: a master is its own peer, also beyond the values' number", () => {
    const masters = render("a", "--set", "master.replicas=3").flatMap(containersOf);
    const peers = masters.flatMap(({ args }) => args.filter((arg) => arg.startsWith("--peers=")));
    const host = (pod: string) => `${pod}.a-heddle-masters.models.svc.cluster.local:8081`;
    const pods = [0, 1, 2].map((index) => `a-heddle-master-${index}`);
    const named = [...pods, "$(POD_NAME)"].map((pod) => `${pod}=${host(pod)}`);
    expect(peers).toEqual([`--peers=${named.join(",")}`]);
  });

  it("chart: the operator has namespaces' projects, the Service what checks HTTPS", () => {
    const objects = render("a", "--values", join(CHART, "ci", "everything.yaml"));
    const args = objects.flatMap(containersOf).flatMap((container) => container.args);
    expect(args).toContain("--projects=ops=*,team-a=vision+speech");
    const tls = ["--set", "master.httpTlsSecret=api-tls", "--set", "service.annotations.a=b"];
    const service = render("a", ...tls).find(({ kind, metadata }) => {
      return kind === "Service" && metadata.name === "a-heddle";
    });
    expect(service?.metadata).toHaveProperty("annotations", {
      a: "b",
      "heddle.dev/endpoint": "https://a-heddle.models.svc.cluster.local:80",
      "heddle.dev/http-tls-secret": "api-tls",
    });
  });

  it("chart: a containing chart's registry and its secrets are those of all pods", () => {
    const file = ["--values", join(CHART, "ci", "everything.yaml"), "--set", "crds.enabled=false"];
    const objects = render("a", ...file, "--set", "secrets.existingSecret=");
    const pods = objects.flatMap(podsOf);
    expect(pods.length).toBeGreaterThan(6);
    for (const { image } of objects.flatMap(containersOf)) {
      expect(image).toMatch(/^mirror\.example\/heddle\/heddle/);
    }
    for (const { imagePullSecrets } of pods) {
      expect(imagePullSecrets).toEqual([{ name: "registry" }, { name: "mirror" }]);
    }
    const own = render("a", ...file, "--set", "global.imageRegistry=")
      .flatMap(containersOf)
      .find(({ args }) => args[0] === "heddle-master");
    expect(own?.image).toMatch(/^registry\.example:5000\//);
  });

  it("chart: further volumes are those of masters and workers that values name", () => {
    const pods = render("a", "--values", join(CHART, "ci", "everything.yaml")).flatMap(podsOf);
    for (const name of ["authorities", "sets"]) {
      const having = pods.filter(({ volumes = [] }) => volumes.some((each) => each.name === name));
      expect(having).toHaveLength(1);
      const mounts = having[0]?.containers[0]?.volumeMounts?.map((each) => each.name);
      expect(mounts).toContain(name);
    }
  });

  it("chart: masters alone are spread by their constraints, which count their own pods", () => {
    const pods = render("a", "--values", join(CHART, "ci", "everything.yaml")).flatMap(podsOf);
    const spread = pods.filter((pod) => pod.topologySpreadConstraints);
    expect(spread.map(({ containers: [first] }) => first?.args[0])).toEqual(["heddle-master"]);
    expect(spread[0]?.topologySpreadConstraints).toMatchObject([
      { maxSkew: 1, labelSelector: { matchLabels: { "app.kubernetes.io/component": "master" } } },
    ]);
  });

  it("chart: Kubernetes' roles get the objects' rights with the definitions", () => {
    const roles = (...args: readonly string[]) =>
      render("a", ...args)
        .filter(({ kind }) => kind === "ClusterRole")
        .map(({ metadata }) => metadata.name);
    expect(roles()).toEqual(["models-a-heddle-view", "models-a-heddle-edit"]);
    expect(roles("--set", "crds.aggregateRoles=false")).toEqual([]);
    expect(roles("--set", "crds.enabled=false")).toEqual([]);
  });

  it("chart: fields of definitions that an older Kubernetes refuses are left out", () => {
    const isSelectable = (version: string) =>
      JSON.stringify(render("a", "--kube-version", version)).includes("selectableFields");
    expect(["1.30.9", "1.31.0", "1.34.3"].map(isSelectable)).toEqual([false, true, true]);
  });

  it("chart: two releases in a namespace share no object", () => {
    const namesOf = (release: string) =>
      render(release, "--set", "parameterServer.replicas=1,crds.enabled=false").map(
        ({ kind, metadata }) => `${kind} ${metadata.name}`,
      );
    const [first, second] = [namesOf("heddle"), namesOf("other")];
    expect(new Set(first).size).toBe(first.length);
    expect(first.filter((name) => second.includes(name))).toEqual([]);
  });

  it("chart: names are such that Kubernetes takes them, whatever the release's", () => {
    const more = ["--set", "fullnameOverride=,parameterServer.replicas=1"];
    const named = (release: string, kinds: RegExp) =>
      VALUES.flatMap((file) => render(release, "--values", file, ...more))
        .filter(({ kind }) => kinds.test(kind))
        .map(({ metadata }) => metadata.name);
    const longest = (kinds: RegExp) =>
      Math.max(...named("r".repeat(53), kinds).map((name) => name.length));
    // The label of a StatefulSet's revision is its name and 11 characters.
    expect(longest(/^StatefulSet$/)).toBeLessThanOrEqual(52);
    expect(longest(/^(Service|Deployment|Job|DaemonSet|Pod)$/)).toBeLessThanOrEqual(63);
    for (const name of named("a.b", /^Service$/)) expect(name).toMatch(/^a-b-heddle[a-z-]*$/);
  });

  it("chart: pods that read a file only at their start follow its changes", () => {
    const file = (name: string) => ["--values", join(CHART, "ci", name)];
    const template = (part: string, ...args: readonly string[]) =>
      render("a", ...args).find(({ kind, metadata }) => {
        return /^(Deployment|StatefulSet)$/.test(kind) && metadata.name === `a-heddle-${part}`;
      });
    const operator = (...args: readonly string[]) =>
      template("operator", ...file("autoscaling.yaml"), ...args);
    expect(operator()).toMatchObject({ kind: "Deployment" });
    expect(operator("--set", "operator.pendingPods.nodeSelector.pool=b")).not.toEqual(operator());
    const worker = (...args: readonly string[]) =>
      template("worker", ...file("task-pods.yaml"), ...args);
    const profile = (value: string) => ["--set", `worker.pods.profiles.${value}`];
    expect(worker()).toMatchObject({ kind: "StatefulSet" });
    expect(worker(...profile("writer.spec.serviceAccountName=a"))).not.toEqual(worker());
    expect(worker(...profile("reader.spec.serviceAccountName=a"))).toEqual(worker());
  });

  it("chart: programs get only flags that they have, and probes paths that exist", () => {
    const containers = VALUES.flatMap((file) => render("heddle", "--values", file)).flatMap(
      containersOf,
    );
    const programs = new Set(containers.map(({ args }) => args[0] ?? ""));
    expect(programs).toContain("heddle-parameter-server");
    for (const program of programs) {
      if (!program.startsWith("heddle-")) continue; // The flags of heddle belong to its commands.
      const app = program.replace("heddle-", "");
      const main = join(ROOT, "packaged/apps", app, "dist/main.js");
      const help = execFileSync(process.execPath, [main, "--help"], { encoding: "utf8" });
      const own = containers.filter(({ args }) => args[0] === program);
      const flags = own.flatMap(({ args }) => args.filter((arg) => arg.startsWith("--")));
      expect(flags.length).toBeGreaterThan(1);
      const known = help.match(/--[a-z-]+/g);
      for (const flag of new Set(flags)) expect(known, program).toContain(flag.split("=")[0]);
    }
    const probes = containers.flatMap((container) =>
      (["startupProbe", "livenessProbe", "readinessProbe"] as const).flatMap(
        (probe) => container[probe]?.httpGet.path ?? [],
      ),
    );
    const paths: string[] = Object.values(healthOperations).map(({ path }) => path);
    expect(probes.filter((path) => !paths.includes(path))).toEqual([]);
    expect(probes).toContain("/readyz");
  });

  it("chart: containers are restricted, but for a worker that its values free", () => {
    const restricted = {
      allowPrivilegeEscalation: false,
      readOnlyRootFilesystem: true,
      capabilities: { drop: ["ALL"] },
    };
    const containers = render("a", "--set", "parameterServer.replicas=1").flatMap(containersOf);
    expect(containers.length).toBeGreaterThan(6);
    for (const { securityContext } of containers) expect(securityContext).toEqual(restricted);
  });

  it.each([
    ["master.replicas=2", /master\/replicas|master\.replicas/],
    ["master.replicsa=3", /replicsa/],
    ["worker.kind=Deployment", /worker[./]kind/],
    ["image.digest=sha256:12", /image[./]digest/],
    ["nameOverride=Models", /nameOverride/],
    ["operator.watchNamespaces={a,a}", /operator[./]watchNamespaces/],
    ["ingress.enabled=true,ingress.host=models.example:80", /ingress[./]host/],
    [
      "worker.gpu.resourceName=nvidia.com/gpu,worker.gpu.count=0",
      /worker.gpu.count: how many devices of worker.gpu.resourceName/,
    ],
    ["master.extraEnv[0].name=A,master.extraEnv[0].value=4", /extraEnv[./]0[./]value/],
    ["ingress.enabled=true", /ingress[./]host/],
    ["httpRoute.enabled=true", /httpRoute[./]parentRefs/],
    [
      "operator.externalMetrics.enabled=true,operator.enabled=false",
      /operator.externalMetrics needs operator.enabled/,
    ],
    [
      "worker.gpu.resourceName=nvidia.com/gpu,worker.gpu.resourceClaimTemplateName=one",
      /worker.gpu.resourceName and worker.gpu.resourceClaimTemplateName exclude each other/,
    ],
    [
      "worker.autoscaling.enabled=true,worker.autoscaling.minReplicas=0,operator.externalMetrics.enabled=true",
      /minReplicas of a HorizontalPodAutoscaler is 1 or more/,
    ],
  ])("chart: setting %# is refused with the name of the value", (setting, message) => {
    expect(() => render("a", "--set", setting)).toThrow(message);
  });
});
