/** The permissions that operations need and keys hold. */
export const PERMISSIONS = [
  "inference:create",
  "inference:priority",
  "batches:read",
  "batches:write",
  "files:read",
  "files:write",
  "models:read",
  "models:deploy",
  "jobs:read",
  "jobs:create",
  "jobs:cancel",
  "jobs:privileged",
  "secrets:read",
  "secrets:use",
  "secrets:write",
  "events:read",
  "events:create",
  "cluster:read",
  "cluster:enroll",
  "cluster:admin",
] as const;

export type Permission = (typeof PERMISSIONS)[number];
