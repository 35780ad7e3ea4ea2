// Original file: proto/divisions.proto


export interface DivisionsRequest {
}

export interface DivisionsRequest__Output {
}
