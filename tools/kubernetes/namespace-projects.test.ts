// holds: kube-projects

import { Heddle } from "@heddle/client/heddle";
import { afterAll, beforeAll, beforeEach, expect, it } from "vitest";
import { startTestMaster, type TestMaster } from "../../apps/master/test/test-master.ts";
import type { TrainingJobObject } from "../../apps/operator/src/jobs/job-status.ts";
import { JobSubmitter } from "../../apps/operator/src/jobs/job-submitter.ts";
import { TrainingJobs } from "../../apps/operator/src/jobs/training-jobs.ts";
import {
  NamespaceAccess,
  readNamespaceProjects,
} from "../../apps/operator/src/kubernetes/namespace-access.ts";
import { StatusWriter } from "../../apps/operator/src/kubernetes/status-writer.ts";
import { InferenceModels } from "../../apps/operator/src/models/inference-models.ts";
import type { InferenceModelObject } from "../../apps/operator/src/models/model-status.ts";
import { projectKind } from "../../apps/operator/src/settings/projects.ts";
import { SettingsReconciler } from "../../apps/operator/src/settings/settings-reconciler.ts";
import { MemoryObjects } from "../../apps/operator/test/memory-objects.ts";

let server: TestMaster;
let heddle: Heddle;
let jobs: MemoryObjects<TrainingJobObject>;
let made = 0;

const statuses = new StatusWriter({ record: async () => {} } as never);
const SLEEPS = { command: "sleep 600" };

/** The operator of the objects' namespace `ns`, with a value of --projects. */
function accessOf(projects: string, own = "heddle"): NamespaceAccess {
  return new NamespaceAccess(readNamespaceProjects(projects), own);
}

/** A new TrainingJob after the operator has seen it. */
async function reconciled(
  spec: TrainingJobObject["spec"],
  projects: string,
): Promise<TrainingJobObject> {
  const name = `job-${++made}`;
  jobs.put(name, spec);
  const connection = { endpoint: server.url, auth_token: server.adminKey };
  const submitter = new JobSubmitter(
    accessOf(projects),
    (rights) => new Heddle({ ...connection, ...rights }),
  );
  await new TrainingJobs(heddle, statuses, submitter).reconcile(jobs.get(name), jobs.resources);
  return jobs.get(name);
}

async function projectOf({ status }: TrainingJobObject): Promise<string> {
  return (await heddle.jobs.get(status?.jobId ?? "")).project;
}

beforeAll(async () => {
  server = await startTestMaster();
  heddle = new Heddle({ endpoint: server.url, auth_token: server.adminKey });
});
beforeEach(() => {
  jobs = new MemoryObjects("TrainingJob");
});
afterAll(() => server.master.close());

it.each([
  ["", undefined, "ns"],
  ["other=vision", "ns", "ns"],
  ["ns=vision+speech", undefined, "vision"],
  ["ns=vision+speech", "speech", "speech"],
  ["ns=*", "secret", "secret"],
  ["ns=*", undefined, "default"],
])("namespaces: with projects %j a job of %s is of %s", async (projects, asked, project) => {
  const spec = asked === undefined ? SLEEPS : { ...SLEEPS, project: asked };
  expect(await projectOf(await reconciled(spec, projects))).toBe(project);
});

it.each([
  ["", "secret"],
  ["", "default"],
  ["ns=vision", "default"],
  ["ns=vision", "ns"],
  ["other=*", "secret"],
])("namespaces: with projects %j a job of %s is refused", async (projects, project) => {
  const { status } = await reconciled({ ...SLEEPS, project }, projects);
  expect(status).toMatchObject({ phase: "Refused", reason: "Refused" });
  expect(status?.message).toMatch(/spec\.project.* ns may be of .*operator\.projects\.ns/);
  expect(status?.conditions).toMatchObject([{ type: "Accepted", status: "False" }]);
  expect(status?.jobId).toBeUndefined();
});

it("namespaces: two that are not listed share no project, nor one of another's list", () => {
  const access = accessOf("other=vision+speech", "heddle");
  const projectOf = (namespace: string) => access.jobRights(namespace, undefined)?.project;
  expect(["heddle", "team-a", "team-b"].map(projectOf)).toEqual(["default", "team-a", "team-b"]);
  expect(access.jobRights("team-a", "team-b")).toBeUndefined();
  for (const namespace of ["vision", "default"]) {
    expect(access.jobRights(namespace, undefined)).toBeUndefined();
    expect(access.jobRights(namespace, namespace)).toBeUndefined();
    expect(access.projectRefusal(namespace, undefined)).toMatch(
      new RegExp(`namespace ${namespace} have no project.*operator\\.projects\\.${namespace} `),
    );
  }
});

it("namespaces: a job reaches nothing of another project, and no privilege", async () => {
  const { job_id: secret } = await heddle.jobs.create({
    name: "secret",
    project: "secret",
    ...SLEEPS,
  });
  const dependent = { ...SLEEPS, dependencies: [secret] };
  const { status } = await reconciled(dependent, "ns=vision");
  expect(status).toMatchObject({ phase: "Refused" });
  expect(status?.message).toMatch(/no job has the id/);
  expect((await reconciled(dependent, "ns=*")).status?.phase).toBe("Accepted");
  const container = { container_image: "a:1", container_options: { network: "host" as const } };
  const privileged = await reconciled({ ...SLEEPS, ...container }, "ns=vision");
  expect(privileged.status?.message).toMatch(
    /jobs:privileged.*rights of a developer in the project vision.*operator\.projects\.ns/,
  );
});

it("namespaces: models, queues and projects are of the cluster's own or trusted ones", async () => {
  const models = new MemoryObjects<InferenceModelObject>("InferenceModel");
  const reconcile = (access: NamespaceAccess) =>
    new InferenceModels(heddle, statuses, access).reconcile(models.get("m"), models.resources);
  models.put("m", { source: "builtin://tiny", replicas: 0 });
  await reconcile(accessOf("ns=vision"));
  expect(models.get("m").status).toMatchObject({ phase: "Refused" });
  expect(models.get("m").status?.message).toMatch(/namespace heddle, or .*operator\.projects\.ns/);
  // Its finalizer is no proof that the operator has registered the model.
  await heddle.models.register({ id: "m", source: "builtin://tiny", replicas: 0 });
  const { metadata, ...rest } = models.get("m");
  const finalizers = ["heddle.dev/cluster"];
  const deleted = { ...metadata, finalizers, deletionTimestamp: "2026-01-01T00:00:00Z" };
  models.all.set("m", { ...rest, metadata: deleted });
  await reconcile(accessOf("ns=vision"));
  expect((await heddle.models.get("m")).id).toBe("m");
  expect(models.get("m").metadata.finalizers).toEqual([]);
  for (const [access, phase] of [
    [accessOf(""), "Refused"],
    [accessOf("ns=*"), "Open"],
    [accessOf("", "ns"), "Open"],
  ] as const) {
    const projects = new MemoryObjects<never>("Project");
    projects.put("vision", { weight: 2 } as never);
    const kind = new SettingsReconciler(projectKind(heddle), statuses, access);
    await kind.reconcile(projects.get("vision"), projects.resources);
    expect((projects.get("vision") as { status: object }).status).toMatchObject({ phase });
  }
});

it.each(["ns", "ns=", "=vision", "ns=Vision", "ns=a+"])(
  "namespaces: --projects %s is refused",
  (text) => {
    expect(() => readNamespaceProjects(text)).toThrow(/--projects takes NAMESPACE=PROJECT/);
  },
);
