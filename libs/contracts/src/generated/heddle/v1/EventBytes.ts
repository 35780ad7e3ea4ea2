// Original file: proto/events.proto


export interface EventBytes {
  'entries'?: (Buffer | Uint8Array | string)[];
}

export interface EventBytes__Output {
  'entries': (Buffer)[];
}
