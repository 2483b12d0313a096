/** Detects HOST_IP from the local address of a connection to the control plane. */
import { connect, isIPv6 } from 'node:net';
import { messageOf } from '@berth/kit/message-of';
import { UnreachableError } from '@berth/wire/client';

/**
 * Opens and closes a TCP connection to `url`, and returns its local address. Rejects if there is no
 * answer within `timeoutMs`.
 */
export function localAddressTo(url: string, timeoutMs = 5_000): Promise<string> {
  const { hostname, port, protocol } = new URL(url);
  const host = hostname.replace(/^\[|\]$/g, '');
  return new Promise((resolve, reject) => {
    const socket = connect({ host, port: Number(port || (protocol === 'https:' ? 443 : 80)) });
    socket.setTimeout(timeoutMs, () =>
      socket.destroy(new Error(`no answer from ${host} within ${timeoutMs} ms`)),
    );
    socket.once('error', reject);
    socket.once('connect', () => {
      const address = socket.localAddress ?? '';
      socket.destroy();
      resolve(
        isIPv6(address) && address.startsWith('::ffff:')
          ? address.slice('::ffff:'.length)
          : address,
      );
    });
  });
}

/**
 * Returns HOST_IP if it is set, else the detected address. While the control plane is unreachable,
 * returns the last detected address, which probes of containers need. Rejects with UnreachableError
 * if no detection ever succeeded.
 */
export function createHostIp(
  configured: string | undefined,
  controlPlaneUrl: string,
): () => Promise<string> {
  let detected: string | null = null;
  return async () => {
    if (configured !== undefined) return configured;
    try {
      detected = await localAddressTo(controlPlaneUrl);
    } catch (error) {
      if (detected === null)
        throw new UnreachableError(
          'detecting HOST_IP failed (set HOST_IP to skip the detection): ' + messageOf(error),
          {
            cause: error,
          },
        );
    }
    return detected;
  };
}
