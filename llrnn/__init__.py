"""The linear logic recurrent neural network of Hu and Murfet (2017): logic, cells, memories, tasks."""
