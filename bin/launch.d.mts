export const ON_THE_MACHINE: Readonly<Record<string, string>>;
