export const ON_THE_MACHINE: readonly string[];
