/** The types of events that the cluster itself records. */
export const EVENT_TYPES = {
  MODEL_TRAINING_START: "A job with a training algorithm began to run.",
  MODEL_DEPLOYMENT: "A model was registered.",
  MODEL_REMOVAL: "A model was removed.",
  MODEL_SCALING: "The number of replicas of a deployment was changed.",
  DATA_ACCESS: "A model was called.",
  ACCESS_DENIED: "A call was denied.",
  API_CALL: "A call changed or started something that has no other type.",
  JOB_SUBMIT: "A job was submitted.",
  JOB_REQUEST: "A job was asked to be cancelled, suspended or resumed.",
  JOB_STATE: "A job entered a state.",
  NODE_STATE: "A node entered a state.",
  NODE_DRAIN: "A node was drained.",
  NODE_RESUME: "A node was returned to service.",
  NODE_REVOKE: "The certificates of a node were revoked.",
  DEVICE_QUARANTINE: "A device was taken out of service, or returned to it.",
  NODE_ENROLMENT: "A join token was used.",
  JOIN_TOKEN_CREATE: "A join token was created.",
  KEY_CREATE: "An API key was created.",
  KEY_REVOKE: "An API key was revoked.",
  KEY_ROTATE: "An API key got a successor.",
  LIMITS_CHANGE: "Limits of a key, a project or a model were changed.",
  QUOTA_CHANGE: "The quota of a project was changed.",
  QUEUE_CHANGE: "A queue was changed.",
  WEBHOOK_CHANGE: "A webhook was created or removed, or got another secret.",
  SECRET_CHANGE: "A secret of a project was set or removed.",
  SETTING_CHANGE: "A setting of the cluster was changed.",
  ROLE_CHANGE: "A role was changed or removed.",
  SERVICE_CHANGE: "A service account was created, changed, disabled or removed.",
  ACCESS_GRANT: "A role was given.",
  ACCESS_REVOKE: "A role was taken away.",
  SESSION_END: "A sign-in of the console was ended, by its user or the identity provider.",
  ACCESS_POLICY_CHANGE: "The access policy was changed.",
  EVENTS_REMOVED: "The oldest events were removed, as `event_days` or `event_mib` says.",
  SUBJECT_SHRED: "The key of a subject was removed: its personal data cannot be read any more.",
  CLUSTER_UPGRADE: "The cluster version was raised.",
  EVENTS_DROPPED: "Calls were not recorded, as the queue of a master was full.",
} as const satisfies Record<string, string>;

export type EventType = keyof typeof EVENT_TYPES;

/** How what an event is about ended. */
export type EventResult = "started" | "success" | "refused" | "denied" | "failed";
