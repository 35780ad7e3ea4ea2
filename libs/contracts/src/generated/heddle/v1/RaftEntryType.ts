// Original file: proto/raft.proto

export const RaftEntryType = {
  EntryNormal: 'EntryNormal',
  EntryConfChange: 'EntryConfChange',
  EntryConfChangeV2: 'EntryConfChangeV2',
} as const;

export type RaftEntryType =
  | 'EntryNormal'
  | 0
  | 'EntryConfChange'
  | 1
  | 'EntryConfChangeV2'
  | 2

export type RaftEntryType__Output = typeof RaftEntryType[keyof typeof RaftEntryType]
