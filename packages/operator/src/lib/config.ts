/** The only reader of the environment in this package. */
export const environment = (): NodeJS.ProcessEnv => process.env;
