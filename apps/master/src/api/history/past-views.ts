import type { PastCollection, PastState } from "@heddle/contracts/api/history/state";
import { CLUSTER_SETTINGS, type SettingName } from "@heddle/contracts/api/settings";
import { limitedSubjectOf } from "@heddle/contracts/limits";
import type { BindingName } from "@heddle/control/access/records";
import type { JobIndex } from "@heddle/control/jobs/index/job-index";
import type { NodeRecord } from "@heddle/control/jobs/records/records";
import type { ReplicatedControl } from "@heddle/control/replicated-control";
import type { ControlState, ModelRecord } from "@heddle/control/state";
import { viewBinding, viewOwnRole, viewService } from "../access/access-view.ts";
import { viewSetting } from "../cluster/setting-view.ts";
import { viewJob } from "../jobs/job-view.ts";
import { viewProject } from "../jobs/project-view.ts";
import { successors, viewKey } from "../keys/key-view.ts";
import { viewLimited } from "../limits/limits-view.ts";
import type { PastQuestion } from "./past-question.ts";

type Item = PastState["data"][number];

/** The state as counts, and one page of one of its collections. */
export function pastState(
  control: ReplicatedControl,
  { collection, limit, after }: Extract<PastQuestion, { kind: "state" }>,
): Omit<PastState, "at" | "time" | "first_kept"> {
  const { state } = control;
  const items =
    collection === undefined ? [] : COLLECTIONS[collection](state, control.logTimeMs, control.jobs);
  const sorted = items
    .filter(({ id }) => after === undefined || id > after)
    .sort((one, other) => (one.id < other.id ? -1 : 1));
  return {
    object: "cluster.state",
    cluster_version: control.version,
    commands: control.commands,
    state_hash: control.hash,
    counts: countsOf(state),
    data: sorted.slice(0, limit),
    has_more: sorted.length > limit,
  };
}

/** The number of records of each map; what these hold is not read. */
function countsOf(state: ControlState): Record<string, number> {
  const { eventNames: _, eventStreams: __, subjectKeys: ___, cluster: ____, ...maps } = state;
  return Object.fromEntries(
    Object.entries(maps).map(([name, { size }]) => [
      name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`),
      size,
    ]),
  );
}

/** Each is an allow-list of fields: a new field of a record is not shown before it is named here. */
const COLLECTIONS: Readonly<
  Record<PastCollection, (state: ControlState, nowMs: number, jobs: JobIndex) => readonly Item[]>
> = {
  keys: ({ keys, models, services }, now) => {
    const rotatedTo = successors(keys.values());
    const context = { now, services, registered: models, rotatedTo };
    return [...keys.values()].map((key) => viewKey(key, context));
  },
  roles: ({ roles }) => [...roles].map(([name, role]) => viewOwnRole(name, role)),
  bindings: ({ bindings }) =>
    [...bindings].flatMap(([key, { roles }]) =>
      roles.map((bound) => viewBinding(subjectOf(key), bound)),
    ),
  service_accounts: ({ services }) =>
    [...services].map(([name, record]) => viewService(name, record)),
  settings: ({ settings }) =>
    (Object.keys(CLUSTER_SETTINGS) as SettingName[]).map((name) => ({
      id: name,
      ...viewSetting(name, settings.get(name)),
    })),
  limits: ({ limits }) =>
    [...limits].map(([id, record]) => viewLimited(limitedSubjectOf(id), record)),
  projects: ({ projects }, nowMs, { storage }) =>
    [...projects.values()].map((project) => viewProject(project, storage, nowMs)),
  models: ({ models, deployments }) =>
    [...models.values()].map((model) => viewPastModel(model, deployments)),
  workers: ({ nodes }) => [...nodes.values()].map(viewPastWorker),
  jobs: (state) => [...state.jobs.values()].map((job) => viewJob(state, job, undefined)),
};

function subjectOf(key: string): Pick<BindingName, "kind" | "subject"> {
  const at = key.indexOf(":");
  return { kind: key.slice(0, at) as BindingName["kind"], subject: key.slice(at + 1) };
}

function viewPastModel(model: ModelRecord, deployments: ControlState["deployments"]) {
  const { id, family, backing, standIn, project, deployment, contextWindow } = model;
  return {
    id,
    family,
    backing,
    stand_in: standIn,
    project: project ?? null,
    context_window: contextWindow,
    deployment,
    replicas: deployments.get(deployment)?.replicas ?? null,
    created_at: new Date(model.createdAtMs).toISOString(),
  };
}

function viewPastWorker({ offer, state, joinedAtMs, quarantined }: NodeRecord) {
  const { id, name, labels, taints, rack, fabric, executors } = offer;
  return {
    id,
    name,
    state,
    labels,
    taints,
    rack,
    fabric,
    executors,
    cpu_cores: offer.cpuMilli / 1_000,
    memory_mib: offer.memoryMib,
    gpu_type: offer.gpuType,
    gpu_count: offer.gpuCount,
    quarantined: quarantined.map(({ device }) => device),
    joined_at: new Date(joinedAtMs).toISOString(),
  };
}
