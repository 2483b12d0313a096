import { QueryClientProvider } from '@tanstack/react-query';
import { RouterProvider } from '@tanstack/react-router';
import { queries } from '../api/queries.ts';
import { Look } from '../ui/theme.tsx';
import { router } from './router.tsx';

export const App = () => (
  <Look>
    <QueryClientProvider client={queries}>
      <RouterProvider router={router} />
    </QueryClientProvider>
  </Look>
);
