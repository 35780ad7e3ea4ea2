// Original file: proto/tasks.proto


export interface RenewLeases {
}

export interface RenewLeases__Output {
}
