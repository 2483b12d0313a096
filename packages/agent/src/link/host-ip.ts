/** Detects HOST_IP: the local address of a connection to the control plane. */
import { connect, isIPv6 } from 'node:net';
import { messageOf } from '@berth/kit/message-of';
import { UnreachableError } from '@berth/wire/client';

/**
 * Opens and closes one TCP connection to `url`. Rejects if there is no answer within `timeoutMs`.
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
 * Returns the set HOST_IP, else the detected one. While the control plane is away it returns the
 * last detected address, because the probe of a container needs it too. Rejects with
 * UnreachableError if no detection ever succeeded.
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
