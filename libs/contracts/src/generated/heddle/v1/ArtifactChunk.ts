// Original file: proto/tasks.proto


export interface ArtifactChunk {
  'data'?: (Buffer | Uint8Array | string);
}

export interface ArtifactChunk__Output {
  'data': (Buffer);
}
