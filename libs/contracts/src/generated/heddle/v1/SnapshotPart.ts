// Original file: proto/raft.proto

import type { SnapshotHead as _heddle_v1_SnapshotHead, SnapshotHead__Output as _heddle_v1_SnapshotHead__Output } from '../../heddle/v1/SnapshotHead.ts';
import type { SnapshotChunk as _heddle_v1_SnapshotChunk, SnapshotChunk__Output as _heddle_v1_SnapshotChunk__Output } from '../../heddle/v1/SnapshotChunk.ts';

export interface SnapshotPart {
  'head'?: (_heddle_v1_SnapshotHead | null);
  'chunk'?: (_heddle_v1_SnapshotChunk | null);
  'part'?: "head"|"chunk";
}

export interface SnapshotPart__Output {
  'head'?: (_heddle_v1_SnapshotHead__Output | null);
  'chunk'?: (_heddle_v1_SnapshotChunk__Output | null);
  'part'?: "head"|"chunk";
}
