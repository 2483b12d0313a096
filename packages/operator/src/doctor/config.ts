/** The environment of `berth doctor`: in a checkout, a role has its settings there. */
export const environment = (): Readonly<Record<string, string | undefined>> => process.env;
