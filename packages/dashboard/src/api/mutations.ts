/**
 * Changes: one request, its progress, and its error where it belongs. The page shows the new state
 * when the control plane has it.
 */
import { useMutation } from '@tanstack/react-query';
import { useRef } from 'react';
import { ApiError, type CallInput } from '@berth/wire/client';
import type { AnswerOf, RouteName } from '@berth/wire/routes';
import { call } from './client.ts';
import { queries } from './queries.ts';

export type ApiMutation<N extends RouteName> = {
  run: (input: CallInput<N>) => Promise<AnswerOf<N> | null>;
  busy: boolean;
  error: unknown;
  /** When the person made the change, in ms; 0: not yet. */
  startedAt: number;
  reset: () => void;
};

/**
 * `run` returns null after an error, which `error` then has, and for a change that runs already.
 * `once`: any other change counts as the same one, for a form whose input has the present time.
 */
export function useApiMutation<N extends RouteName>(
  name: N,
  then?: (answer: AnswerOf<N>) => void,
  { once = false }: { once?: boolean } = {},
): ApiMutation<N> {
  const mutation = useMutation({
    mutationFn: (input: CallInput<N>) => call(name, input),
    onSuccess: (answer) => {
      void queries.invalidateQueries();
      then?.(answer);
    },
    onError: (error) => {
      // The page then shows the values of the others, beside the text that the person typed.
      if (error instanceof ApiError && error.code === 'changed_meanwhile')
        void queries.invalidateQueries();
    },
  });
  /** The same change again while it runs is a double click, or a second Enter on a slow network. */
  const running = useRef(new Set<string>());
  return {
    run: async (input) => {
      const key = once ? '' : JSON.stringify(input);
      if (running.current.has(key)) return null;
      running.current.add(key);
      try {
        return await mutation.mutateAsync(input);
      } catch {
        return null;
      } finally {
        running.current.delete(key);
      }
    },
    busy: mutation.isPending,
    error: mutation.error,
    startedAt: mutation.submittedAt,
    reset: mutation.reset,
  };
}

/**
 * Returns the error of the change that began last, for changes that show their errors at one place.
 * An older error is history.
 */
export const errorOfLast = (
  ...changes: readonly Pick<ApiMutation<RouteName>, 'error' | 'startedAt'>[]
): unknown => changes.toSorted((a, b) => b.startedAt - a.startedAt)[0]?.error;
