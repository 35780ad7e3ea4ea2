// Original file: proto/cluster.proto

export const NodeKind = {
  NODE_KIND_UNSPECIFIED: 'NODE_KIND_UNSPECIFIED',
  NODE_KIND_WORKER: 'NODE_KIND_WORKER',
  NODE_KIND_PARAMETER_SERVER: 'NODE_KIND_PARAMETER_SERVER',
} as const;

export type NodeKind =
  | 'NODE_KIND_UNSPECIFIED'
  | 0
  | 'NODE_KIND_WORKER'
  | 1
  | 'NODE_KIND_PARAMETER_SERVER'
  | 2

export type NodeKind__Output = typeof NodeKind[keyof typeof NodeKind]
