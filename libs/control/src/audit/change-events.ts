import type { EventType } from "@heddle/contracts/event-types";
import { bindingKey } from "../access/records.ts";
import { NAMES_OWNERS, versionOf } from "../cluster-version.ts";
import type { ControlCommand } from "../command.ts";
import { projectOfDeployment, projectOfModel } from "../model-names.ts";
import { secretKey } from "../secrets/records.ts";
import type { ControlState } from "../state.ts";

/** What an event says of a change. */
export interface ChangeEvent {
  readonly type: EventType;
  readonly subject: string;
  /** Absent for what belongs to the whole cluster. */
  readonly project?: string | undefined;
  /** Only fields that are named here: never a secret, a hash of one, or a job's environment. */
  readonly data: Readonly<Record<string, unknown>>;
}

type Commands = { readonly [C in ControlCommand as C["type"]]: C };
type Rules = {
  readonly [T in keyof Commands]?: (command: Commands[T], state: ControlState) => ChangeEvent;
};

/** The most items of a list in an event. */
const MAX_ITEMS = 32;

/** Commands with an event of their own; what others change shows in the states of jobs and nodes. */
const RULES: Rules = {
  "key.create": ({ key }) => keyEvent("KEY_CREATE", key.id, key, { ...viewKey(key) }),
  "key.revoke": ({ id }, { keys }) => keyEvent("KEY_REVOKE", id, keys.get(id), {}),
  "key.rotate": ({ id, key, expiresAtMs }, { keys }) =>
    keyEvent("KEY_ROTATE", id, keys.get(id), {
      successor: key.id,
      expires_at: new Date(expiresAtMs).toISOString(),
    }),
  "limits.set": ({ kind, name, project, record }, { keys }) => ({
    type: "LIMITS_CHANGE",
    subject: `${kind}s/${name}`,
    project: kind === "project" ? name : kind === "key" ? keys.get(name)?.project : project,
    data: { limits: record.limits, ...(record.prices && { prices: record.prices }) },
  }),
  "model.register": ({ model, deployment, replaces }, state) => ({
    type: "MODEL_DEPLOYMENT",
    subject: `models/${model.id}`,
    project: versionOf(state) < NAMES_OWNERS ? model.lineage?.project : projectOfModel(model),
    data: {
      model: model.id,
      deployment: deployment.spec.key,
      replicas: deployment.replicas,
      stand_in: model.standIn,
      ...(replaces && { replaces: true }),
      ...(model.lineage && {
        job: model.lineage.jobId,
        sha256: model.lineage.sha256,
        ...(model.lineage.dataSha256 && { data_sha256: model.lineage.dataSha256 }),
      }),
    },
  }),
  "model.remove": ({ id }) => ({
    type: "MODEL_REMOVAL",
    subject: `models/${id}`,
    data: { model: id },
  }),
  "deployment.scale": ({ deployment, from, replicas, reason }, state) =>
    scalingEvent(deployment, state, { from, replicas, reason: reason.slice(0, 500) }),
  "deployment.configure": ({ deployment, replicas, scaling }, state) =>
    scalingEvent(deployment, state, { replicas, ...(scaling && { scaling }) }),
  "setting.put": ({ name, value }) => ({
    type: "SETTING_CHANGE",
    subject: `settings/${name}`,
    data: { value },
  }),
  "join.create": ({ join }) => ({
    type: "JOIN_TOKEN_CREATE",
    subject: `nodes/${join.name ?? join.role}`,
    data: { role: join.role, expires_at: new Date(join.expiresAtMs).toISOString() },
  }),
  "join.use": ({ role }) => ({
    type: "NODE_ENROLMENT",
    subject: `nodes/${role}`,
    data: { role },
  }),
  "role.set": ({ name, role }) => ({
    type: "ROLE_CHANGE",
    subject: `roles/${name}`,
    data: { permissions: role.permissions.slice(0, MAX_ITEMS) },
  }),
  "role.remove": ({ name }) => ({
    type: "ROLE_CHANGE",
    subject: `roles/${name}`,
    data: { removed: true },
  }),
  "service.set": ({ name }, { services }) => ({
    type: "SERVICE_CHANGE",
    subject: `service-accounts/${name}`,
    data: { disabled: services.get(name)?.disabledAtMs !== undefined },
  }),
  "service.remove": ({ name }) => ({
    type: "SERVICE_CHANGE",
    subject: `service-accounts/${name}`,
    data: { removed: true },
  }),
  "binding.add": ({ binding: { kind, subject, role, project } }) => ({
    type: "ACCESS_GRANT",
    subject: `bindings/${bindingKey(kind, subject)}`,
    project,
    data: { role },
  }),
  "binding.remove": ({ binding: { kind, subject, role, project } }) => ({
    type: "ACCESS_REVOKE",
    subject: `bindings/${bindingKey(kind, subject)}`,
    project,
    data: { role },
  }),
  "access.set": ({ policy }) => ({
    type: "ACCESS_POLICY_CHANGE",
    subject: "access",
    data: {
      admin_roles: policy.adminRoles.slice(0, MAX_ITEMS),
      default_role: policy.defaultRole ?? null,
    },
  }),
  "job.submit": ({ jobId, spec }, { jobs }) => ({
    type: "JOB_SUBMIT",
    subject: `jobs/${jobId}`,
    project: jobs.get(jobId)?.project ?? spec.project,
    data: {
      name: spec.name,
      algorithm: spec.algorithm ?? null,
      gpu_count: spec.resources?.gpu_count ?? 0,
    },
  }),
  "job.request": ({ jobId, request }, { jobs }) => ({
    type: "JOB_REQUEST",
    subject: `jobs/${jobId}`,
    project: jobs.get(jobId)?.project,
    data: { request },
  }),
  "node.drain": ({ nodeId, byMs }) => ({
    type: "NODE_DRAIN",
    subject: `nodes/${nodeId}`,
    data: { by: new Date(byMs).toISOString() },
  }),
  "node.resume": ({ nodeId }) => ({
    type: "NODE_RESUME",
    subject: `nodes/${nodeId}`,
    data: {},
  }),
  "node.revoke": ({ nodeId, role, name }) => ({
    type: "NODE_REVOKE",
    subject: `nodes/${nodeId}`,
    data: { role, name },
  }),
  "node.quarantine": ({ nodeId, device, why }) => ({
    type: "DEVICE_QUARANTINE",
    subject: `nodes/${nodeId}`,
    data: { device, healthy: why === undefined },
  }),
  "project.set": ({ name, weight, quota }) => ({
    type: "QUOTA_CHANGE",
    subject: `projects/${name}`,
    project: name,
    data: { weight, quota },
  }),
  "webhook.set": ({ id, webhook }) => ({
    type: "WEBHOOK_CHANGE",
    subject: `webhooks/${id}`,
    project: webhook.project,
    data: { host: new URL(webhook.url).host, secret: webhook.secret },
  }),
  "webhook.remove": ({ id }) => ({
    type: "WEBHOOK_CHANGE",
    subject: `webhooks/${id}`,
    data: { removed: true },
  }),
  "session.end": () => ({ type: "SESSION_END", subject: "access", data: {} }),
  "secret.set": (secret, { secrets }) => ({
    type: "SECRET_CHANGE",
    subject: `secrets/${secret.name}`,
    project: secret.project,
    data: { version: secrets.get(secretKey(secret))?.version ?? 0 },
  }),
  "secret.remove": ({ name, project }) => ({
    type: "SECRET_CHANGE",
    subject: `secrets/${name}`,
    project,
    data: { removed: true },
  }),
  "events.remove": ({ first, end }) => ({
    type: "EVENTS_REMOVED",
    subject: "events",
    data: { first, end, events: end - first },
  }),
  "events.shred": ({ id }) => ({
    type: "SUBJECT_SHRED",
    subject: `subject-keys/${id}`,
    data: {},
  }),
  "queue.set": ({ queue }) => ({
    type: "QUEUE_CHANGE",
    subject: `queues/${queue.name}`,
    data: { queue: queue.name },
  }),
};

/** Whether a command of that type makes an event of its own, which then names the call. */
export function hasChangeEvent(type: ControlCommand["type"]): boolean {
  return type === "events.log" || Object.hasOwn(RULES, type);
}

/** The event of an applied command; undefined for commands without one. */
export function changeEvent(command: ControlCommand, state: ControlState): ChangeEvent | undefined {
  const rule = RULES[command.type] as
    | ((command: ControlCommand, state: ControlState) => ChangeEvent)
    | undefined;
  return rule?.(command, state);
}

function scalingEvent(
  deployment: string,
  state: ControlState,
  data: ChangeEvent["data"],
): ChangeEvent {
  const project =
    versionOf(state) < NAMES_OWNERS ? undefined : projectOfDeployment(state, deployment);
  return { type: "MODEL_SCALING", subject: `deployments/${deployment}`, project, data };
}

function keyEvent(
  type: EventType,
  id: string,
  key: { readonly project?: string | undefined } | undefined,
  data: ChangeEvent["data"],
): ChangeEvent {
  return { type, subject: `keys/${id}`, project: key?.project, data };
}

function viewKey(key: Commands["key.create"]["key"]) {
  return {
    name: key.name,
    role: key.role ?? null,
    ...(key.service !== undefined && { service_account: key.service }),
    scopes: key.scopes.slice(0, MAX_ITEMS),
    models: key.models.slice(0, MAX_ITEMS),
    ...(key.expiresAtMs !== undefined && { expires_at: new Date(key.expiresAtMs).toISOString() }),
  };
}
