/** Secrets of a project. The API never returns a value. */

/** `run`: the container gets it. `build`: the build gets it. */
export type SecretScope = 'run' | 'build';
/** How a container gets it: an environment variable, or the file /run/secrets/NAME. */
export type SecretDelivery = 'env' | 'file';
