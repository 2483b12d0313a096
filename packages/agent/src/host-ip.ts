/** HOST_IP as the contract detects it: the local address of a connection to the control plane. */
import { connect, isIPv6 } from 'node:net';
import { UnreachableError } from '@berth/wire/client';

/** Opens and closes one TCP connection to `url`. Rejects when there is no answer within `timeoutMs`. */
export function localAddressTo(url: string, timeoutMs = 5_000): Promise<string> {
  const { hostname, port, protocol } = new URL(url);
  const host = hostname.replace(/^\[|\]$/g, '');
  return new Promise((resolve, reject) => {
    const socket = connect({ host, port: Number(port || (protocol === 'https:' ? 443 : 80)) });
    socket.setTimeout(timeoutMs, () => socket.destroy(new Error(`no answer from ${host} within ${timeoutMs} ms`)));
    socket.once('error', reject);
    socket.once('connect', () => {
      const address = socket.localAddress ?? '';
      socket.destroy();
      resolve(isIPv6(address) && address.startsWith('::ffff:') ? address.slice('::ffff:'.length) : address);
    });
  });
}

/**
 * HOST_IP as set, else as detected; what was detected last while the control plane is away (a container is probed by it
 * then too). Rejects with UnreachableError when there was never an answer.
 */
export function createHostIp(set: string | undefined, controlPlaneUrl: string): () => Promise<string> {
  let known: string | null = null;
  return async () => {
    if (set !== undefined) return set;
    try {
      known = await localAddressTo(controlPlaneUrl);
    } catch (error) {
      if (known === null)
        throw new UnreachableError(`HOST_IP cannot be detected: ${error instanceof Error ? error.message : String(error)}`, {
          cause: error,
        });
    }
    return known;
  };
}
