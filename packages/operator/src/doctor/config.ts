/** The environment of `berth doctor`. In a checkout, it has the settings of a role. */
export const environment = (): Readonly<Record<string, string | undefined>> => process.env;
