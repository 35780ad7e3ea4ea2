// Original file: proto/raft.proto


export interface SnapshotChunk {
  'data'?: (Buffer | Uint8Array | string);
  'digest'?: (Buffer | Uint8Array | string);
}

export interface SnapshotChunk__Output {
  'data': (Buffer);
  'digest': (Buffer);
}
