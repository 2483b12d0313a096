/** Returns the environment. No other file of this package reads it. */
export const environment = (): NodeJS.ProcessEnv => process.env;
